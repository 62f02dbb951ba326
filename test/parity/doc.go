// Package parity holds SDP to what TCP does. It contains only tests.
//
// TestScripts runs scripts side by side: each over package net first, then over
// the devices shm and iwarp. A script writes down what it observes, one line for
// each observation, and every line that differs from package net's fails the
// test unless the table in known_test.go lists it with a reason.
//
// TestExitTable checks that the bytes that Write accepted reach the peer although
// the writing process ends without Close. With the flag -write it leaves its
// result in docs/exit.md:
//
//	go test ./test/parity -run TestExitTable -timeout 30m -runs 20 -write
//
// PARITY_LONG=1 in the environment lengthens the scripts whose short form does
// not show what takes minutes.
package parity
