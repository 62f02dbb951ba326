//go:build linux && cgo

package verbs

import "github.com/gosdp/gosdp/rdma"

// through is where an RDMA Write has got to that goes through the ring, because its
// memory cannot be registered. It may be longer than the ring has room. What did fit
// has gone then, and the caller, who is told that there is no room and is to post it
// again, has it go on from there: to wait for the peer's hardware here would be to
// wait with the caller's locks held. The zero value is of none.
type through struct {
	base   uintptr
	size   int
	id, va uint64
	stag   rdma.STag
	gone   int
}

// carry calls put with what is left, piece after piece, until room says that the next
// does not fit; then the error is rdma.ErrNoRoom.
func (t *through) carry(wr rdma.WriteWR, room func(size int) bool, put func(piece rdma.WriteWR, last bool) error) error {
	of := through{base: uintptr(addressOf(wr.Local)), size: len(wr.Local), id: wr.ID, va: wr.VA, stag: wr.STag, gone: t.gone}
	if of != *t {
		of.gone = 0 // what was begun before will not be ended
		*t = of
	}
	for t.gone < t.size {
		piece := wr
		piece.Local = wr.Local[t.gone:min(t.gone+maxMessage, t.size)]
		piece.VA += uint64(t.gone)
		if !room(len(piece.Local)) {
			return rdma.ErrNoRoom
		}
		t.gone += len(piece.Local)
		if err := put(piece, t.gone == t.size); err != nil {
			return err
		}
	}
	*t = through{}
	return nil
}
