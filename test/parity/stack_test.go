package parity

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/sdp"
)

// stack is what a script runs over: package net, or SDP on one device.
type stack struct {
	name   string
	config *sdp.Config // nil means package net
}

// moveVariable says when connections move to shared memory.
const moveVariable = "SDP_MOVE"

// local are the stacks that exchange bytes with programs without SDP as they are. Over iwarp, a Dial that may ask for
// SDP sends a Request, and a listener waits for one.
var local = []string{"net", "shm"}

// stacks returns all stacks, package net first.
func stacks() []stack {
	all := []stack{{name: "net"}}
	for _, device := range devices {
		all = append(all, stack{device, config(device)})
	}
	return all
}

func stackNamed(name string) stack {
	for _, s := range stacks() {
		if s.name == name {
			return s
		}
	}
	panic("no stack " + name)
}

// config selects the device. Its timeouts are longer than any delay on a busy machine, so that
// no connection falls back to plain TCP because of one.
func config(device string) *sdp.Config {
	return &sdp.Config{
		Devices:          []string{device},
		Probe:            []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // to whom iwarp sends a Request
		ReplyTimeout:     10 * time.Second,
		HandshakeTimeout: 10 * time.Second,
		StepUpTimeout:    10 * time.Second,
		PlainTTL:         time.Millisecond, // a failed handshake must not affect later dials
	}
}

// conn has the methods that *net.TCPConn and *sdp.Conn have in common.
type conn interface {
	net.Conn
	syscall.Conn
	CloseRead() error
	CloseWrite() error
	SetLinger(seconds int) error
}

// dialer has the methods that net.Dialer and sdp.Dialer have in common.
type dialer interface {
	Dial(network, address string) (net.Conn, error)
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// ownAddress is a free port of a loopback address that no other process of these tests uses: a port that a script has
// closed stays closed.
var ownAddress = func() string {
	if runtime.GOOS != "linux" { // which alone has them all
		return "127.0.0.1:0"
	}
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:0", 1+pid>>16&0x3f, pid>>8&0xff, pid&0xff)
}()

// Listen listens on ownAddress.
func (s stack) Listen() (net.Listener, error) {
	if s.config == nil {
		return net.Listen("tcp", ownAddress)
	}
	lc := sdp.ListenConfig{Config: s.config}
	return lc.Listen(context.Background(), "tcp", ownAddress)
}

// NewListener returns a listener of the stack that wraps an existing one.
func (s stack) NewListener(below net.Listener) (net.Listener, error) {
	if s.config == nil {
		return below, nil
	}
	ln, err := sdp.NewListener(below, s.config)
	if err != nil {
		return nil, err // not a nil *sdp.Listener in the interface
	}
	return ln, nil
}

// ListenOnly returns a listener that accepts only clients of the stack, from any address.
func (s stack) ListenOnly() (net.Listener, error) {
	if s.config == nil {
		return s.Listen()
	}
	lc := sdp.ListenConfig{Config: s.config}
	return lc.Listen(context.Background(), "sdp", ownAddress)
}

// Dialer returns a dialer with a timeout; 0 means none.
func (s stack) Dialer(timeout time.Duration) dialer {
	d := &net.Dialer{Timeout: timeout}
	if s.config == nil {
		return d
	}
	return &sdp.Dialer{NetDialer: d, Config: s.config}
}

// Dial dials the address and checks that the connection uses the stack.
func (s stack) Dial(address string) (conn, error) {
	c, err := s.DialContext(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return c.(conn), nil
}

// DialContext acts like Dial and has the signature of http.Transport.DialContext.
func (s stack) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := s.Dialer(0).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := s.carries(c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// carries returns an error if the connection does not use the stack.
func (s stack) carries(c net.Conn) error {
	device := "net"
	if sc, ok := c.(*sdp.Conn); ok {
		if device = sc.Device(); device == "tcp" {
			device = "shm" // it has not moved yet
		}
	}
	if device != s.name {
		return fmt.Errorf("the connection is a %T over %s instead of %s", c, device, s.name)
	}
	return nil
}

// duplicate returns a duplicate of the listener's socket.
func duplicate(ln net.Listener) (*os.File, error) {
	return ln.(interface{ File() (*os.File, error) }).File()
}
