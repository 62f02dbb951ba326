//go:build !race

package main

// slack is how many bytes of memory may come and go: the runtime's own, and what
// the pools of a process have found a use for since.
const slack = 16 << 20
