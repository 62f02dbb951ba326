package sdp

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// selfDials are dials of package net, and of ours with and without permission to ask the peer.
var selfDials = map[string]func(d *net.Dialer, address string) (net.Conn, error){
	"net": func(d *net.Dialer, address string) (net.Conn, error) { return d.Dial("tcp", address) },
	"tcp": func(d *net.Dialer, address string) (net.Conn, error) {
		return (&Dialer{NetDialer: d}).Dial("tcp", address)
	},
	"tcp, Probe": func(d *net.Dialer, address string) (net.Conn, error) {
		config := &Config{Devices: []string{"iwarp"}, Probe: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
		return (&Dialer{NetDialer: d, Config: config}).Dial("tcp", address)
	},
}

// freeAddress returns an address on which nothing listens, and where no other program takes a port.
func freeAddress(t *testing.T) *net.TCPAddr {
	ln, err := net.Listen("tcp", "127.83.68.81:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr)
}

// TestSelfConnect: if the kernel chooses the port to which a program dials, TCP connects the socket with
// itself. Dial tries again, as net.Dial.
func TestSelfConnect(t *testing.T) {
	for name, dial := range selfDials {
		at := freeAddress(t)
		sockets := 0
		d := &net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
			if sockets++; sockets > 1 {
				return nil
			}
			failed := c.Control(func(fd uintptr) { // what the kernel may choose
				err = syscall.Bind(int(fd), &syscall.SockaddrInet4{Port: at.Port, Addr: [4]byte{127, 83, 68, 81}})
			})
			require.NoError(t, failed)
			return err
		}}
		_, err := dial(d, at.String())
		assert.ErrorIs(t, err, syscall.ECONNREFUSED, name)
		assert.Equal(t, 2, sockets, name)
	}
}

// TestWantedSelfConnect: a program that names the port at both ends gets a connection with itself, as
// from net.Dial, on which it reads what it writes and nothing else. On network sdp nobody answers there.
func TestWantedSelfConnect(t *testing.T) {
	for name, dial := range selfDials {
		at := freeAddress(t)
		c, err := dial(&net.Dialer{LocalAddr: at}, at.String())
		require.NoError(t, err, name)
		requireTCP(t, c)
		require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
		fmt.Fprint(c, "mine")
		require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
		got, err := io.ReadAll(c)
		require.NoError(t, err, name)
		assert.Equal(t, "mine", string(got), name)
		c.Close()
	}
	at := freeAddress(t)
	d := Dialer{NetDialer: &net.Dialer{LocalAddr: at}, Config: &Config{ReplyTimeout: 50 * time.Millisecond}}
	_, err := d.Dial("sdp", at.String())
	var not *NotSDPError
	assert.ErrorAs(t, err, &not)
}
