//go:build !race

package traffic

// Slack is how many bytes of memory may come and go, in the runtime and in the pools of the
// process.
const Slack = 16 << 20
