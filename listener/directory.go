package listener

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// announceInDir shows diallers of other network namespaces that SDP is served here. Where it
// fails they do not see it, and use plain TCP.
func (l *Listener) announceInDir() {
	at, ok := l.ln.Addr().(*net.TCPAddr)
	if l.cfg.Dir == nil || !ok || !slices.Contains(l.cfg.Devices, wire.DeviceSHM.String()) {
		return
	}
	l.cfg.Dir.Clean()
	a, err := l.cfg.Dir.Announce(l.cfg.UIDs)
	if err == nil {
		l.announcer = a
		err = a.AddListener(at.AddrPort())
	}
	if err != nil {
		l.cfg.Logger.Warn("sdp: other containers cannot see that SDP is served", "address", at, "reason", err)
	}
}

// claimed answers the claims that may be for c. It returns nil if there are none. The address that
// the client has connected to is announced if it is a new one: interfaces come and go.
func (l *Listener) claimed(c net.Conn) *shmdir.Held {
	if l.announcer == nil || onThisHost(c) {
		return nil
	}
	local, remote := addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	if !local.IsValid() || !remote.IsValid() {
		return nil
	}
	if err := l.announcer.Add(local); err != nil {
		l.cfg.Logger.Debug("sdp: an address is not announced", "address", local, "reason", err)
	}
	return l.announcer.Claimed(remote)
}

// stillExpects says what is to be expected of a client that has not sent its Request yet.
func (h *handshake) stillExpects() expectation {
	if h.held != nil {
		if h.held.Expected() {
			return certain
		}
		h.releaseClaims()
		h.expected = expects(h.conn, &h.l.cfg)
		// A client that has ended since has sent its Request before.
		if _, v := first(h.conn, make([]byte, iwarp.KeyLen)); v == isMPA {
			return certain
		}
		return h.expected
	}
	return expects(h.conn, &h.l.cfg)
}

// releaseClaims ends the claims on a connection whose handshake is over.
func (h *handshake) releaseClaims() {
	if h.held != nil {
		h.held.Release()
		h.held = nil
	}
}

// meetsElsewhere returns an error if the client offers a channel in a directory that we do not
// share with it.
func (h *handshake) meetsElsewhere(s rdma.Stepper, offers *wire.Offers, peer *rdma.Peer) error {
	_, offered := s.(rdma.Offerer)
	switch {
	case !offered || !offers.HasDir || peer.InDir:
		return nil
	case h.l.cfg.Dir == nil:
		return errors.New("the client meets us in a shm directory, and we have none")
	}
	return errors.New("the client's shm directory is not ours")
}

// translated reports that the ends see different addresses of the server because the kernel
// translates those of a service: the client has connected to one of Services, and what is
// between the ends keeps the client's address and port.
func (h *handshake) translated(offers *wire.Offers, peer *rdma.Peer) bool {
	service := offers.Server.Addr().Unmap()
	return peer.InDir && offers.SameTuple(peer.Remote, offers.Server) &&
		slices.ContainsFunc(h.l.cfg.Services, func(p netip.Prefix) bool { return p.Contains(service) })
}

// dirPath returns the path of a directory, "" of none.
func dirPath(d *shmdir.Dir) string {
	if d == nil {
		return ""
	}
	return d.Path()
}
