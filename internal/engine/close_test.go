package engine

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

func TestCloseEndsBlockedCalls(t *testing.T) {
	t.Parallel() // it waits
	p := startPeer(t)
	for i := range 4 {
		call := blockedCalls[1+i%2]
		c := p.perform(t, call.script)
		reads := blockedRead.start(t, c)
		writes := call.start(t, c)
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		checkError(t, await(t, reads, soon/2), "read", net.ErrClosed)
		checkError(t, await(t, writes, answerTime+soon/2), "write", net.ErrClosed)
		await(t, closed, soon)
		p.release(t)
	}
}

func TestCallsAfterClose(t *testing.T) {
	c, s := pair(t)
	require.NoError(t, c.Close())
	for _, v := range []struct {
		op   string
		call func() error
	}{
		{"read", func() error { _, err := c.Read(make([]byte, 1)); return err }},
		{"read", func() error { _, err := c.Read(nil); return err }},
		{"write", func() error { _, err := c.Write(make([]byte, 1)); return err }},
		{"write", func() error { _, err := c.Write(nil); return err }},
		{"set", func() error { return c.SetDeadline(time.Now()) }},
		{"set", func() error { return c.SetReadDeadline(time.Now()) }},
		{"set", func() error { return c.SetWriteDeadline(time.Now()) }},
		{"close", c.CloseRead},
		{"close", c.CloseWrite},
		{"close", c.Close},
	} {
		checkError(t, v.call(), v.op, net.ErrClosed)
	}
	assert.NotNil(t, c.LocalAddr())
	assert.Equal(t, c.RemoteAddr(), s.LocalAddr())

	n, err := s.Read(make([]byte, 1))
	assert.Zero(t, n)
	assert.Equal(t, io.EOF, err)
}

func TestOneOfManyClosesSucceeds(t *testing.T) {
	c, _ := pair(t)
	errs := make(chan error, 10)
	for range cap(errs) {
		go func() { errs <- c.Close() }()
	}
	succeeded := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			succeeded++
		} else {
			checkError(t, err, "close", net.ErrClosed)
		}
	}
	assert.Equal(t, 1, succeeded)
}

// TestCloseAfterBothDisConnsSaysNothing: the second to send it ends the channel
// (§8.2.1), and what comes from the first after that would only be answered with
// a reset.
func TestCloseAfterBothDisConnsSaysNothing(t *testing.T) {
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	accepted := accept1(ln)
	tcp, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	qp, _, err := iwarp.Connect(tcp, iwarp.Config{}, hostilePrivate(t, hostileHello(false)))
	require.NoError(t, err)
	defer qp.Close()
	qp.ProvideReceive(64, 16<<10)
	p := &hostilePeer{t: t, qp: qp}
	p.say(hostileData(""))
	s := <-accepted

	require.NoError(t, engineOf(t, s).CloseWrite())
	p.hears(byte(wire.MIDDisConn))
	p.say(hostileData("last"), hostileMessage{mid: byte(wire.MIDDisConn)})
	require.NoError(t, tcp.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(s)
	require.NoError(t, err)
	assert.Equal(t, "last", string(got))
	require.NoError(t, s.Close())

	n, err := qp.Wait(make([]rdma.Completion, 1))
	assert.Zero(t, n, "a message came after DisConn")
	assert.Equal(t, io.EOF, err)
}

// TestCloseDeliversWhatWasWritten however it was written, and however late it is
// read.
func TestCloseDeliversWhatWasWritten(t *testing.T) {
	for _, size := range []int{1, 64, 3000, 128 << 10} {
		c, s := pair(t)
		_, err := writeStream(c, 0, 128<<10, size)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		n, err := readStream(s, 0, forever, 1000)
		assert.Equal(t, io.EOF, err, "Writes of %d bytes", size)
		assert.Equal(t, 128<<10, n, "Writes of %d bytes", size)
	}
}

// TestDueIsSentByWhoLetsGo has a DisConn become due while somebody is sending,
// who has to send it, and at once.
func TestDueIsSentByWhoLetsGo(t *testing.T) {
	c, s := pair(t)
	c.out.mu.Lock()
	closed := make(chan error)
	go func() { closed <- c.CloseWrite() }()
	err := <-closed
	c.out.unlock()
	require.NoError(t, err)
	c.mu.Lock()
	assert.True(t, c.session.EndSent())
	c.mu.Unlock()
	_, err = s.Read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)
}

// TestEndWithoutDisConn is what a peer's end looks like whose process has exited: over
// a device that delivers what it has accepted nevertheless, that is an end.
func TestEndWithoutDisConn(t *testing.T) {
	house := newHostileHouse(t)
	defer house.close()
	for _, side := range hostileSides {
		t.Run(side, func(t *testing.T) {
			p, c := hostileAs(t, side, house.ln)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
			p.say(hostileData("all"))
			p.qp.Close()
			got, err := io.ReadAll(c)
			assert.NoError(t, err)
			assert.Equal(t, "all", string(got))
			c.Write([]byte("x")) // is lost, as over TCP
			_, err = c.Write([]byte("x"))
			checkError(t, err, "write", syscall.EPIPE)
			assert.NoError(t, c.Close())
		})
	}
}

// TestCloseWriteEndsAfterSmallWrites, which share messages.
func TestCloseWriteEndsAfterSmallWrites(t *testing.T) {
	const total = 1000
	for range 20 {
		c, s := pair(t)
		_, err := writeStream(c, 0, total, 1)
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite())
		n, err := readStream(s, 0, forever, 1000)
		assert.Equal(t, io.EOF, err)
		require.Equal(t, total, n)
	}
}
