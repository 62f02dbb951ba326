// Package rnic holds what the devices have in common: how they wait with a deadline, and what the
// race detector must know of them.
package rnic
