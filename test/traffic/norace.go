//go:build !race

package traffic

// Slack is how many bytes of memory may come and go: the runtime's own, and what
// the pools of a process have found a use for since.
const Slack = 16 << 20
