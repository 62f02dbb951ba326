// Package adopt has an example for each kind of program that adopts SDP. The
// lines that do it say "adopts SDP"; all else is there without it too. Every
// example runs as a test. The servers, and the databases that answer nothing,
// are in the same process as their clients, because SDP does not care.
package adopt
