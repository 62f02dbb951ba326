// Package cost tests what a connection of little traffic costs: the program that has it,
// the other connections of that program, and its neighbours on the machine. Each test runs
// the same load over package net and over shared memory, in turns, and compares. With the
// race detector there are none: what it adds is not the same for both.
package cost
