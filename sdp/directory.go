package sdp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/wire"
)

// meeting is what devices knows of Config.ShmDir.
type meeting struct {
	dir      *shmdir.Dir // nil: there is none
	unmet    error       // why one was named and is not used
	services []netip.Prefix
}

// meeting opens the directory that the program or the environment names. It fails if what they say
// makes no sense. A directory that cannot be used is no failure.
func (c *Config) meeting() (m meeting, err error) {
	if m.services, err = prefixesOf(servicesVariable); err != nil {
		return meeting{}, err
	}
	path, source := getenv(shmDirVariable), shmDirVariable
	if c != nil && c.Services != nil {
		m.services = c.Services
	}
	if c != nil && c.ShmDir != "" {
		path, source = c.ShmDir, "Config.ShmDir"
	}
	if path == "" {
		return m, nil
	}
	if !filepath.IsAbs(path) {
		return meeting{}, fmt.Errorf("%s=%s: not an absolute path", source, path)
	}
	if m.dir, err = shmdir.Open(path); err != nil {
		m.unmet = fmt.Errorf("shm directory %s: %w", path, err)
		if c != nil && c.Logger != nil && unusable.first(m.unmet.Error()) {
			c.Logger.Warn("sdp: programs of other containers are not met", "reason", m.unmet)
		}
	}
	return m, nil
}

// meets reports that programs of other network namespaces can be met.
func (d *devices) meets() bool { return d.dir != nil && slices.Contains(d.usable, wire.DeviceSHM) }

// reports remembers what was reported.
type reports struct {
	mu   sync.Mutex
	said map[string]bool
}

// unusable has the reasons why directories could not be used.
var unusable reports

// first reports that what was not reported before. Few things are ever.
func (o *reports) first(what string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.said[what] || len(o.said) >= 64 {
		return false
	}
	if o.said == nil {
		o.said = make(map[string]bool)
	}
	o.said[what] = true
	return true
}

// inDirectory is the part of an attempt that concerns the directory.
type inDirectory struct {
	claims    *shmdir.Claims // of the last connection; nil: none
	confirmed bool           // the listener expects a Request on it
	meetIn    string         // the directory in which the peer is met; "": it is met in the network namespace
}

// claim has d tell listeners that are announced in the directory of its connections. A program
// that chooses its address gets none of that: the socket would be bound twice.
func (a *attempt) claim(d *net.Dialer) {
	a.endClaims()
	if !a.devices.meets() || a.network.tcp == "unix" || d.LocalAddr != nil {
		return
	}
	claims := a.devices.dir.NewClaims(a.cfg.PeerUIDs)
	a.claims = claims
	control, before := d.ControlContext, d.Control
	d.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) (err error) {
		switch {
		case control != nil:
			err = control(ctx, network, address, c)
		case before != nil:
			err = before(network, address, c)
		}
		if err == nil {
			claims.Add(c, address)
		}
		return err
	}
}

// confirm reports that a listener of another container, which is announced in the directory,
// has the other end of c and expects a Request.
func (a *attempt) confirm(c net.Conn) bool {
	if a.claims == nil || a.confirmed {
		return a.confirmed
	}
	err := a.claims.Confirm(addrPort(c.LocalAddr()), addrPort(c.RemoteAddr()))
	if err != nil && err != shmdir.ErrNotAnnounced {
		a.decline(wire.DeviceSHM.String(), err)
	}
	a.confirmed = err == nil
	return a.confirmed
}

// worked notes that c uses SDP.
func (a *attempt) worked(c net.Conn) {
	if a.confirmed {
		a.claims.Worked(addrPort(c.RemoteAddr()))
	}
}

// endClaims ends the claims of the last connection.
func (a *attempt) endClaims() {
	if a.claims != nil {
		a.claims.Close()
		a.claims, a.confirmed = nil, false
	}
}

// meetingDir returns the directory in which to meet the peer at the other end of c; "" if that is
// in this network namespace, or there is no directory.
func (a *attempt) meetingDir(c net.Conn) string {
	if _, tcp := c.RemoteAddr().(*net.TCPAddr); !tcp || !a.devices.meets() || onThisHost(c) {
		return ""
	}
	if _, err := localpeer.Other(c); err == nil {
		return "" // both ends are addresses of this network namespace
	}
	return a.devices.dir.Path()
}

// meetsIn has the offers say in which directory the peer is met.
func (a *attempt) meetsIn(o *wire.Offers) {
	if a.meetIn != "" && o.HasHost {
		o.MeetIn(a.devices.dir.ID())
	}
}

// unreached adds to the error that shm does not reach the peer why no directory helps.
func (a *attempt) unreached(device wire.Device, err error) error {
	if err != nil && device == wire.DeviceSHM && a.devices.unmet != nil {
		return fmt.Errorf("%w; %w", err, a.devices.unmet)
	}
	return err
}
