//go:build !race

package faults

const raceEnabled = false

// slack is how many bytes of memory may come and go.
const slack = 16 << 20
