package rdmatest

import (
	"errors"
	"math/rand/v2"
	"net"

	"github.com/gosdp/gosdp/rdma"
)

type modelRegion struct {
	mem    []byte
	va     uint64
	access rdma.Access
}

func (e *modelEnd) Register(b []byte, access rdma.Access) (rdma.Region, error) {
	defer e.change()()
	if e.closed && e.m.fault != registersClosed {
		return rdma.Region{}, net.ErrClosed
	}
	s := rdma.STag(rand.Uint32())
	for _, taken := e.regions[s]; taken || s == 0; _, taken = e.regions[s] {
		s = rdma.STag(rand.Uint32())
	}
	if e.m.fault == countsSTags {
		s = rdma.STag(len(e.regions) + 1)
	}
	r := modelRegion{b, rand.Uint64() >> 16, access}
	e.aloneLocked()
	e.regions[s] = r
	e.faultyRegister(s, r)
	return rdma.Region{STag: s, VA: r.va}, nil
}

func (e *modelEnd) Invalidate(s rdma.STag) {
	defer e.change()()
	if e.m.fault == invalidatesLate {
		e.m.changed.Wait()
	}
	e.aloneLocked()
	if e.m.fault != staysExposed {
		delete(e.regions, s)
	}
}

// access checks an access by the peer.
func (e *modelEnd) access(s rdma.STag, va uint64, n int, want rdma.Access) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	r, known := e.region(s)
	switch at := va - r.va; {
	case !known:
		return nil, errors.New("it named an unknown STag")
	case r.access&want == 0 && e.m.fault != rightsIgnored:
		return nil, errors.New("it lacks the right to this access")
	case at > uint64(len(r.mem)) || uint64(n) > uint64(len(r.mem))-at:
		return e.outside(r, at, n)
	default:
		return r.mem[at : at+uint64(n)], nil
	}
}
