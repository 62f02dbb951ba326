// Package adopt has an example for each kind of program that adopts SDP. The
// lines that do it say "adopts SDP"; all others are there without it too. Every
// example runs as a test, with both ends in one process, which SDP allows. The
// databases are stand-ins that hang up; real ones are in package drivers.
package adopt
