//go:build race

package traffic

// Slack: the race detector keeps memory of its own for all that a program has
// ever touched.
const Slack = 512 << 20
