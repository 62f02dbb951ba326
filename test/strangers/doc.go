// Package strangers dials servers from Debian's packages that know nothing of SDP and that
// check what a client sends first. It compares their logs with those for package net.
package strangers
