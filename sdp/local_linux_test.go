package sdp

// met reports whether the ends of a connection share memory.
func met(c *Conn) bool {
	l, ok := c.carrier.(*local)
	if !ok {
		return false
	}
	linked, _ := l.TryMeet()
	return linked
}
