//go:build race

package main

// raceEnabled: everything takes longer.
const raceEnabled = true
