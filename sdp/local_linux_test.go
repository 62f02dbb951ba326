package sdp

import "github.com/gosdp/gosdp/internal/meeting"

func init() { meeting.TestSelf = true } // both ends of most connections are in the process of the test

// met reports whether the ends of a connection share memory.
func met(c *Conn) bool {
	l, ok := c.carrier.(*local)
	if !ok {
		return false
	}
	linked, _ := l.TryMeet()
	return linked
}
