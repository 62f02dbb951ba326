package dump

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"time"
)

// Trim completes a file that could not be written to its end: it removes an incomplete block, and
// adds the block that ends a file, which says why. There may be no room for that one.
func Trim(f *os.File, why error) error {
	var whole int64
	var packets uint64
	r := bufio.NewReader(io.NewSectionReader(f, 0, math.MaxInt64))
	for {
		head, err := r.Peek(8)
		if err != nil {
			break
		}
		kind, n := order.Uint32(head), order.Uint32(head[4:])
		if n < 12 || n > math.MaxInt32 {
			break
		}
		if _, err := r.Discard(int(n)); err != nil {
			break
		}
		whole += int64(n)
		if kind == packetBlock {
			packets++
		}
	}
	if err := f.Truncate(whole); err != nil || whole == 0 {
		return err
	}
	comment := fmt.Sprintf("The dump ended because it could not be written: %v.", why)
	if _, err := f.WriteAt(appendEnd(nil, time.Now().UnixNano(), packets, 0, comment), whole); err != nil {
		return f.Truncate(whole)
	}
	return nil
}
