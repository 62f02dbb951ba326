package engine

import (
	"syscall"

	"github.com/gosdp/gosdp/internal/fault"
)

// touchMost is how many bytes are read ahead of being sent. They may come from a disk, but
// splitting a Write makes zero copy less effective.
const touchMost = 64 << 20

// writeMapped is writeWhole for memory that may have been unmapped or truncated.
func (c *Conn) writeMapped(b []byte) (n int, err error) {
	for {
		part := b[n:][:min(touchMost, len(b)-n)]
		can := fault.Readable(part)
		k, err := c.writeOrLose(part[:can])
		n += k
		switch {
		case err != nil:
			return n, err
		case can < len(part):
			return n, syscall.EFAULT
		case n == len(b):
			return n, nil
		}
	}
}
