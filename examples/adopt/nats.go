package adopt

import (
	"net"

	"github.com/gosdp/gosdp/sdp"
	"github.com/nats-io/nats.go"
)

// NATS returns an option for nats.Connect that must come after nats.Timeout. If the server's name has several
// addresses, that time is for each of them; the library's own dialler divides it.
func NATS() nats.Option {
	return func(o *nats.Options) error {
		o.CustomDialer = &sdp.Dialer{NetDialer: &net.Dialer{Timeout: o.Timeout}}
		return nil
	}
}
