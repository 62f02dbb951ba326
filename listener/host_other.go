//go:build !linux

package listener

// readHost knows of no name for the host that no other has.
func readHost() host { return host{} }
