package harness

import (
	"context"
	"fmt"
	"net"

	"github.com/gosdp/gosdp/sdp"
)

// A Contender is a way to connect two programs. Another one is added to
// [Contenders] by the functions that listen and dial.
type Contender struct {
	Name   string
	Listen func() (net.Listener, error)
	Dial   func(ctx context.Context, address string) (net.Conn, error)
}

// Baseline is the contender that all ratios are taken against.
const Baseline = "tcp"

// Contenders are all that there are, the baseline first.
var Contenders = []Contender{
	{
		Name:   Baseline,
		Listen: func() (net.Listener, error) { return net.Listen("tcp", loopback) },
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
	},
	overSDP("iwarp", &sdp.Config{Devices: []string{"iwarp"}}),
	overSDP("iwarp+crc", &sdp.Config{Devices: []string{"iwarp"}, CRC: true}),
}

const loopback = "localhost:0"

// overSDP is SDP over the one device that config names.
func overSDP(name string, config *sdp.Config) Contender {
	return Contender{
		Name: name,
		Listen: func() (net.Listener, error) {
			listen := sdp.ListenConfig{Config: config}
			return listen.Listen(context.Background(), "sdp", loopback)
		},
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			dialer := sdp.Dialer{Config: config}
			conn, err := dialer.DialContext(ctx, "sdp", address)
			if err != nil {
				return nil, err
			}
			// A connection that stayed on another device would be measured
			// under a false name.
			if device := conn.(*sdp.Conn).Device(); device != config.Devices[0] {
				conn.Close()
				return nil, fmt.Errorf("%s: the connection is on device %s", name, device)
			}
			return conn, nil
		},
	}
}

// find returns the contender of that name.
func find(name string) (Contender, error) {
	for _, c := range Contenders {
		if c.Name == name {
			return c, nil
		}
	}
	return Contender{}, fmt.Errorf("no contender %q", name)
}
