//go:build race

package main

// The race detector keeps memory of its own for all that a program has ever touched.
const slack = 512 << 20
