//go:build !race

package programs

const race = false
