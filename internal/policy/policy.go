// Package policy decides what a Dial or a Listen may use, and how its connections work. It reads all settings:
// the program's options, the operator's rules, the environment and the devices of this machine. What it
// finds is a [Policy].
package policy

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/timing"
	"github.com/gosdp/gosdp/wire"
)

// A Policy is what one Dial or one Listen may use, and how. It does not change.
type Policy struct {
	Network Network

	// SHM says that shared memory may be used. Dir is where containers meet, "" if nowhere, and UIDs are
	// the users, besides the program's own, whose programs may share memory with this one.
	SHM  bool
	Dir  string
	UIDs []int

	// Devices are the RDMA devices that may and can be used, the best one first. Declined has the reason
	// why each of the others is not. Listed says that the program or the environment lists the devices,
	// and Off that its list has none.
	Devices  []wire.Device
	Declined handshake.Reasons
	Listed   bool
	Off      bool
	named    bool           // they were listed, or the program asks for SDP: slow ones are used too
	probe    []netip.Prefix // the addresses that may be asked

	ReplyTimeout     time.Duration // for a Reply, and for a meeting if no Request follows it
	MeetTimeout      time.Duration // for a meeting after which a Request is sent
	PlainTTL         time.Duration
	HandshakeTimeout time.Duration
	StepUpTimeout    time.Duration
	ThroughProxies   bool
	CRC              bool

	ZCopyThreshold int           // 0: the device decides
	BusyPoll       time.Duration // 0: as long as it pays; negative: not at all
	ReadBuffer     int           // 0: the default

	Logger *slog.Logger // nil: the program has none
}

// New returns the policy for a network. asked says that the program asks for SDP, which
// allows every device unless the program or the environment lists some. New fails if a setting is malformed, even
// if another one takes precedence over it, so that the mistake is found.
func New(o *Options, n Network, asked bool) (*Policy, error) {
	p := &Policy{Network: n, named: asked, Logger: o.logger()}
	if err := p.read(o); err != nil {
		return nil, err
	}
	o.noteRules()
	nameUnknown(p.Logger)
	if n.Plain {
		p.Devices, p.SHM = nil, false
	}
	f := o.filled()
	p.ReplyTimeout, p.MeetTimeout = f.ReplyTimeout, f.ReplyTimeout
	if n.Only && (o == nil || o.ReplyTimeout == 0) {
		p.ReplyTimeout = timing.Demand
	}
	p.PlainTTL, p.StepUpTimeout = f.PlainTTL, f.StepUpTimeout
	p.ThroughProxies, p.CRC, p.ReadBuffer = f.StepUpThroughProxies, f.CRC, f.ReadBuffer
	return p, nil
}

// read reads what the environment and the operator can set too, and then looks for the devices.
func (p *Policy) read(o *Options) (err error) {
	list, err := o.devices()
	if err != nil {
		return err
	}
	p.SHM = list.shm && HaveSHM
	p.Listed = list.source != ""
	p.named = p.named || p.Listed
	p.Off = !list.shm && len(list.devices) == 0
	if p.ZCopyThreshold, err = o.threshold(); err != nil {
		return err
	}
	if p.BusyPoll, err = o.busyPoll(); err != nil {
		return err
	}
	if p.probe, err = o.probe(); err != nil {
		return err
	}
	if err = setMemory(); err != nil {
		return err
	}
	if p.Dir, err = o.directory(); err != nil {
		return err
	}
	if p.HandshakeTimeout, err = o.handshakeTimeout(); err != nil {
		return err
	}
	if p.UIDs, err = o.peerUIDs(); err != nil {
		return err
	}
	p.find(list)
	p.Declined = slices.Clip(p.Declined)
	return nil
}

// Err returns why a program or a rule that demands SDP cannot have it here.
func (p *Policy) Err() error {
	if p.Network.Only && len(p.Devices) == 0 && !p.SHM {
		return p.Network.Demanded(p.Declined.Err())
	}
	return nil
}

// Asks reports whether clients on network tcp may send a Request.
func (p *Policy) Asks() bool { return len(p.Devices) > 0 && len(p.probe) > 0 }
