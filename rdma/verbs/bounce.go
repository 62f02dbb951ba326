//go:build linux && cgo

package verbs

import "github.com/gosdp/gosdp/rdma"

// bounce is the progress of an RDMA Write that is copied to the ring because its memory cannot be
// registered. It may be longer than the ring has room. Then the part that fits has been sent, and
// the caller is told that there is no room. When it posts the Write again, bounce continues:
// waiting for the peer's hardware here would mean waiting with the caller's locks held. The zero
// value is for no Write.
type bounce struct {
	base   uintptr
	size   int
	id, va uint64
	stag   rdma.STag
	gone   int
}

// carry calls put with the rest, in pieces of at most longest bytes, until room says that the next does not fit. Then
// the error is rdma.ErrNoRoom.
func (t *bounce) carry(wr rdma.WriteWR, longest int, room func(size int) bool, put func(piece rdma.WriteWR, last bool) error) error {
	of := bounce{base: uintptr(addressOf(wr.Local)), size: len(wr.Local), id: wr.ID, va: wr.VA, stag: wr.STag, gone: t.gone}
	if of != *t {
		of.gone = 0 // the caller has abandoned what was begun before
		*t = of
	}
	for t.gone < t.size {
		piece := wr
		piece.Local = wr.Local[t.gone:min(t.gone+longest, t.size)]
		piece.VA += uint64(t.gone)
		if !room(len(piece.Local)) {
			return rdma.ErrNoRoom
		}
		t.gone += len(piece.Local)
		if err := put(piece, t.gone == t.size); err != nil {
			return err
		}
	}
	*t = bounce{}
	return nil
}
