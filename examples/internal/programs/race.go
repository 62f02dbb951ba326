//go:build race

package programs

const race = true
