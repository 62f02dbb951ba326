//go:build race

package traffic

// Slack is large because the race detector keeps memory for everything that a program has
// touched.
const Slack = 512 << 20
