package policy

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/gosdp/gosdp/internal/timing"
)

// Options are what a program has set for a Dial or a Listen. They have the fields of the Config of package
// sdp, which describes them. Nil means the defaults.
type Options struct {
	Devices []string
	Probe   []netip.Prefix

	ReplyTimeout         time.Duration
	HandshakeTimeout     time.Duration
	StepUpTimeout        time.Duration
	StepUpThroughProxies bool
	PeerUIDs             []int
	ShmDir               string
	PlainTTL             time.Duration

	CRC            bool
	ZCopyThreshold int
	ReadBuffer     int
	BusyPoll       time.Duration

	Logger *slog.Logger
}

// logger returns the program's Logger; nil: it has none.
func (o *Options) logger() *slog.Logger {
	if o == nil {
		return nil
	}
	return o.Logger
}

// filled returns the options with the defaults of times that only a program sets.
func (o *Options) filled() Options {
	var f Options
	if o != nil {
		f = *o
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&f.ReplyTimeout, timing.Reply},
		{&f.StepUpTimeout, timing.StepUp},
		{&f.PlainTTL, timing.PlainTTL},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return f
}
