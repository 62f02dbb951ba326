package engine

import (
	"cmp"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCutByFIN: the peer's kernel sends a FIN when its process dies. A stream that this cuts
// between two messages ends as over TCP. If it cuts a message or a transfer, bytes are missing.
func TestCutByFIN(t *testing.T) {
	for _, v := range []struct {
		name      string
		threshold string
		act       func(v *victim)
		reads     bool   // act has a Read in progress
		got       string // what the victim reads
		err       error
	}{
		{"between two messages", "-1", func(v *victim) { v.say(hostileData("all")) }, false, "all", io.EOF},
		{"in an FPDU", "-1", func(v *victim) {
			v.say(hostileData("all"))
			_, err := v.tcp.Write([]byte{0, 100, 0x41, 0x43, 0})
			require.NoError(v.t, err)
		}, false, "all", syscall.ECONNRESET},
		{"after a SrcAvail", "1", func(v *victim) { v.say(hostileSrcAvail(hostileSize, "rides")) }, false, "rides", syscall.ECONNRESET},
		{"after a SendSm", "-1", func(v *victim) {
			v.say(hostileSrcAvail(11, "rides"))
			v.hears(4)
		}, false, "rides", syscall.ECONNRESET},
		{"after a part of what SendSm asked for", "-1", func(v *victim) {
			v.say(hostileSrcAvail(11, "rides"))
			v.hears(4)
			v.say(hostileData("half"))
		}, false, "rideshalf", syscall.ECONNRESET},
		{"after all that SendSm asked for", "-1", func(v *victim) {
			v.say(hostileSrcAvail(9, "rides"))
			v.hears(4)
			v.say(hostileData("half"))
		}, false, "rideshalf", io.EOF},
		{"before a Read Response", "1", func(v *victim) {
			v.say(hostileSrcAvail(hostileSize, "r"))
			go func() {
				_, err := v.c.Read(make([]byte, hostileSize))
				v.read <- err
			}()
			require.Eventually(v.t, func() bool { // its device answers only when it polls
				v.c.mu.Lock()
				defer v.c.mu.Unlock()
				return v.c.zcopy.reads > 0
			}, soon, time.Millisecond)
		}, true, "", syscall.ECONNRESET},
		{"with a SinkAvail of the victim's", "1", (*victim).reads, true, "", io.EOF},
		{"after an RDMA Write", "1", func(v *victim) {
			v.reads()
			v.fills(v.sink, 1000, 0)
		}, true, "", syscall.ECONNRESET},
		{"with a SrcAvail of the victim's", "1", (*victim).writes, false, "", io.EOF},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(thresholdVariable, v.threshold)
			ln, err := engineListen()
			require.NoError(t, err)
			defer ln.Close()
			p, nc := hostilePair(t, ln)
			defer p.qp.Close()
			c := engineOf(t, nc)
			defer c.Close()
			w := &victim{t: t, hostilePeer: p, c: c, write: make(chan error, 1), read: make(chan error, 1)}
			asksEarly(c)
			v.act(w)
			require.NoError(t, p.tcp.(*net.TCPConn).CloseWrite())
			awaitOver(t, c)
			var first error // of the Read that was in progress
			if v.reads {
				first = await(t, w.read, soon)
			}
			got, err := io.ReadAll(c)
			if err == nil {
				err = cmp.Or(first, io.EOF)
			}
			assert.Equal(t, v.got, string(got))
			if v.err == io.EOF {
				assert.Equal(t, io.EOF, err)
			} else {
				checkError(t, err, "read", v.err)
			}
			_, err = c.Read(make([]byte, 1))
			assert.Equal(t, io.EOF, err, "a reset is reported once")
			_, err = c.Write([]byte("x"))
			if v.err != io.EOF {
				checkError(t, err, "write", syscall.EPIPE)
			}
		})
	}
}
