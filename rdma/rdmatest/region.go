package rdmatest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

const (
	margin = 4096 // bytes on either side of exposed memory that must not change
	canary = 0xC5 // their contents
	blank  = 0x11 // the initial contents of exposed memory
)

// exposed is registered memory in the middle of a larger array.
type exposed struct {
	rdma.Region
	arena []byte
	mem   []byte // the registered part
}

// expose registers n bytes that hold blank.
func (e *end) expose(n int, access rdma.Access) exposed {
	e.t.Helper()
	return e.exposeContents(nil, n, access)
}

// exposeContents registers n bytes that begin with these. The contents are there before the device
// registers them: if the peer is another process, the race detector does not know that the peer was
// told about the region only afterwards.
func (e *end) exposeContents(these []byte, n int, access rdma.Access) exposed {
	e.t.Helper()
	arena, mem := embed(n)
	copy(mem, these)
	region, err := e.Register(mem, access)
	must(e.t, err)
	if region.STag == 0 {
		e.t.Fatalf("%s: Register returned the STag that names no region", e.name)
	}
	return exposed{region, arena, mem}
}

// embed makes n blank bytes between two margins.
func embed(n int) (arena, mem []byte) {
	arena = make([]byte, n+2*margin)
	mem = arena[margin : margin+n : margin+n]
	fill(arena[:margin], canary)
	fill(mem, blank)
	fill(arena[margin+n:], canary)
	return arena, mem
}

// fill sets every byte of b to v. Byte by byte this would take long with the race detector.
func fill(b []byte, v byte) {
	page := bytes.Repeat([]byte{v}, 4096)
	for len(b) > 0 {
		b = b[copy(b, page):]
	}
}

// checkMargins checks that nothing outside the embedded part has changed.
func checkMargins(t *testing.T, what string, arena []byte) {
	t.Helper()
	for _, side := range [][]byte{arena[:margin], arena[len(arena)-margin:]} {
		if n := bytes.Count(side, []byte{canary}); n != margin {
			t.Errorf("%s: %d bytes beside it have changed", what, margin-n)
		}
	}
}

// checkMemory checks that memory holds want.
func checkMemory(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	differ, first := 0, -1
	for i := range got {
		if got[i] != want[i] {
			differ++
			if first < 0 {
				first = i
			}
		}
	}
	t.Errorf("%s: %d of %d bytes differ, the first at %d", what, differ, len(got), first)
}

// transfers are the Reads and Writes that one goroutine has outstanding at an end whose pump collects.
type transfers struct {
	e             *end
	id            uint64
	reads, writes []transfer // in the order in which they were posted, which is that of completion
}

// transfer is one of them, and what to do when it has completed.
type transfer struct {
	id   uint64
	then func() error
}

// read posts a Read of len(local) bytes from va in the peer's region s.
func (x *transfers) read(local []byte, s rdma.STag, va uint64, then func() error) error {
	x.id++
	wr := rdma.ReadWR{ID: x.id, Local: local, STag: s, VA: va}
	err := x.begin(func() error { return x.e.PostRead(wr) })
	if err == nil {
		x.reads = append(x.reads, transfer{wr.ID, then})
	}
	return err
}

// write posts a Write of local to va in the peer's region s.
func (x *transfers) write(local []byte, s rdma.STag, va uint64, then func() error) error {
	x.id++
	wr := rdma.WriteWR{ID: x.id, Local: local, STag: s, VA: va}
	err := x.begin(func() error { return x.e.PostWrite(wr) })
	if err == nil {
		x.writes = append(x.writes, transfer{wr.ID, then})
	}
	return err
}

// begin posts a transfer. As long as there is no room, it reaps outstanding ones.
func (x *transfers) begin(post func() error) error {
	for {
		err := post()
		if err == nil {
			x.e.carry()
			return nil
		}
		if !errors.Is(err, rdma.ErrNoRoom) {
			return fmt.Errorf("%s: %w", x.e.name, err)
		}
		if x.outstanding() > 0 {
			err = x.reap()
		} else {
			err = x.e.WaitRoom()
		}
		if err != nil {
			return err
		}
	}
}

func (x *transfers) outstanding() int { return len(x.reads) + len(x.writes) }

// reap waits for one completion, which must be that of the oldest of its kind.
func (x *transfers) reap() error {
	c, err := x.e.take(x.e.work)
	if err != nil {
		return err
	}
	queue := &x.writes
	if c.Op == rdma.OpRead {
		queue = &x.reads
	}
	if len(*queue) == 0 {
		return fmt.Errorf("%s: completion of operation %d, ID %d, with none outstanding", x.e.name, c.Op, c.ID)
	}
	oldest := (*queue)[0]
	*queue = (*queue)[1:]
	if c.ID != oldest.id {
		return fmt.Errorf("%s: completion of operation %d, ID %d, before that of ID %d", x.e.name, c.Op, c.ID, oldest.id)
	}
	if oldest.then == nil {
		return nil
	}
	return oldest.then()
}

// finish reaps everything.
func (x *transfers) finish() error {
	for x.outstanding() > 0 {
		if err := x.reap(); err != nil {
			return err
		}
	}
	return nil
}
