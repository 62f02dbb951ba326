//go:build race

package listener

// slow is how much longer things take under the race detector, which every handshake
// that gives way passes several times, on a machine with as much else to do.
const slow = 25
