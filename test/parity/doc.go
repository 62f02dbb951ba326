// Package parity compares SDP with TCP. It contains only tests.
//
// TestScripts runs each script over package net and over the devices shm and iwarp. A script
// notes what it observes, one line per observation. A line that differs from package net's
// fails the test, unless the table in known_test.go lists the difference with a reason.
//
// TestExitTable checks that bytes that Write accepted reach the peer although the writing
// process ends without Close. With the flag -write it writes its result to docs/exit.md:
//
//	go test ./test/parity -run TestExitTable -timeout 30m -runs 20 -write
//
// PARITY_LONG=1 in the environment lengthens scripts to show effects that take minutes.
package parity
