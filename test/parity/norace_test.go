//go:build !race

package parity

const raceFactor = 1
