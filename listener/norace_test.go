//go:build !race

package listener

const slow = 1
