// Package adopt has an example for each kind of program that adopts SDP. The lines
// that adopt it are marked "adopts SDP"; all others are the same without SDP. Every
// example runs as a test with both ends in one process. The databases here are stubs;
// package drivers has tests with real ones.
package adopt
