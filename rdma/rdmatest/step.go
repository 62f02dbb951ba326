package rdmatest

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// dialTime limits how long a channel may take to open.
const dialTime = time.Minute

// DialHalves are the two halves of a channel of a device that is dialled: one dials where the other has
// invited it. host is the address of both.
func DialHalves(d rdma.Dialler, cfg rdma.ChannelConfig, host netip.Addr) (dials, listens Half) {
	dials = func(t *testing.T, line *Line) rdma.QueuePair {
		ctx, cancel := context.WithTimeout(context.Background(), dialTime)
		defer cancel()
		var to rdma.Address
		line.Hear(&to)
		to.Local, to.Remote = host, host
		q, err := d.Dial(ctx, to, cfg, []byte("hello"), func([]byte) (int, error) { return cfg.IRD, nil })
		must(t, err)
		return q
	}
	listens = func(t *testing.T, line *Line) rdma.QueuePair {
		ctx, cancel := context.WithTimeout(context.Background(), dialTime)
		defer cancel()
		place, err := d.Listen(cfg)
		must(t, err)
		defer place.Close()
		ends := netip.AddrPortFrom(host, 1)
		invitation, err := place.Invite(rdma.Peer{Local: ends, Remote: ends}, func(said []byte) ([]byte, int, error) {
			if string(said[:5]) != "hello" { // a device may append zeros
				return nil, 0, errors.New("no hello")
			}
			return []byte("answer"), cfg.IRD, nil
		})
		must(t, err)
		defer invitation.Withdraw()
		line.Say(invitation.Address())
		q, err := invitation.Take(ctx)
		must(t, err)
		return q
	}
	return dials, listens
}
