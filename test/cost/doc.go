// Package cost tests what a connection with little traffic costs its program, the other
// connections of that program, and other programs on the machine. Each test runs the same
// load over package net and over shared memory, alternately, and compares. It has no tests
// with the race detector, whose overhead differs between the two.
package cost
