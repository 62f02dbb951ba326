// Package netns makes network namespaces for tests. It works on Linux.
package netns
