//go:build !linux

package sdp

// ackNow does nothing: there is no option for it here, nor is it waited for.
func (c *conn) ackNow() {}
