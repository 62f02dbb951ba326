package rdmatest

import (
	"errors"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

var promptChecks = []check{
	{"NeverBlocks", checkNeverBlocks},
	{"Invalidate", checkInvalidateIsPrompt},
}

// The calls that never block return although the peer calls nothing. A call that does not is ended by
// the guard.
func checkNeverBlocks(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	region := b.expose(100, rdma.RemoteRead|rdma.RemoteWrite)
	may := func(err error) {
		t.Helper()
		if !errors.Is(err, rdma.ErrNoRoom) {
			must(t, err)
		}
	}
	var wcs [4]rdma.Completion
	sent := uint64(0)
	for range window {
		n, err := a.PostSend([]rdma.SendWR{message(contents(sent, 100), 16)})
		may(err)
		sent += uint64(n)
		may(read(a, make([]byte, 100), region.STag, region.VA))
		may(write(a, contents(0, 100), region.STag, region.VA))
		a.Flush()
		a.Busy()
		_, err = a.Poll(wcs[:])
		must(t, err)
		a.Wake()
		a.WakeRoom()
		a.Shrink()
		mine, err := a.Register(make([]byte, 100), rdma.RemoteRead)
		must(t, err)
		a.Invalidate(mine.STag)
	}
	a.collect()
	b.collect()
	for k := range sent {
		b.expect(contents(k, 100))
	}
}

// Invalidate returns although neither end calls anything, if nothing is being moved.
func checkInvalidateIsPrompt(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	a.collect()
	b.collect()
	target := b.expose(100_000, rdma.RemoteWrite)
	x := transfers{e: a}
	must(t, x.write(contents(0, 100_000), target.STag, target.VA, nil))
	must(t, x.finish())
	a.send([]byte("written"))
	b.expect([]byte("written"))
	a.stop()
	b.stop()
	b.Invalidate(target.STag)
}
