//go:build race

package main

// raceEnabled relaxes limits, because everything takes longer.
const raceEnabled = true
