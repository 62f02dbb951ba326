//go:build linux && !android && (amd64 || arm64)

// This file is not part of the Go distribution. "sdp go" has added it to package net. Only a program
// that was built with -iwarp or -verbs uses it.

package net

import (
	"context"
	inner "internal/gosdp/net"
	"internal/gosdp/sdp"
	"internal/runtime/exithook"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Programs without SDP over RDMA must not refer to what follows, or the linker makes it a part of them.

// sdpListener is an *sdp.Listener: one whose clients may ask for SDP over RDMA.
type sdpListener interface {
	inner.Listener
	SetDeadline(t time.Time) error
	File() (*os.File, error)
}

// listener returns nil for a connection.
func (l *sdpLink) listener() sdpListener {
	if sdpRDMA {
		return l.serves
	}
	return nil
}

// rdma returns the connection if it is one of SDP over RDMA.
func (l *sdpLink) rdma() *sdp.Conn {
	if sdpRDMA && l.conn != nil && l.conn.OverRDMA() {
		return l.conn
	}
	return nil
}

// sdpDialRDMA is sdpDial for an address that may be asked, or must be, whether it speaks SDP.
func (sd *sysDialer) sdpDialRDMA(ctx context.Context, laddr, raddr *TCPAddr, proto int) (*TCPConn, error) {
	var last *TCPConn
	connect := func(ctx context.Context) (inner.Conn, error) {
		c, err := sd.doDialTCPProto(sdpPlain(ctx), laddr, raddr, proto)
		if err != nil {
			return nil, &sdpFailed{err}
		}
		last = c
		return sdpInner(c.fd), nil
	}
	c, why, err := sdp.DialRDMA(inner.WithConnect(ctx, connect), sd.network, raddr.String())
	if err != nil {
		if e := mapErr(ctx.Err()); e != nil {
			return nil, e
		}
		return nil, sdpError("connect", err)
	}
	up, _ := c.(*sdp.Conn)
	sdpUp(up)
	return last.sdpConn(up, why, "dial"), nil
}

// sdpServeRDMA is sdpServe for a listener whose clients may ask for SDP, or must.
func (fd *netFD) sdpServeRDMA() (*netFD, error) {
	served, err := sdp.NewListener(&inner.TCPListener{Below: &sdpBelow{fd}}, nil)
	if err != nil {
		return nil, err
	}
	return sdpNetFD(fd, &sdpLink{serves: served}), nil
}

// sdpBelow is the listening socket as the library sees it.
type sdpBelow struct{ fd *netFD }

func (l *sdpBelow) Accept() (inner.Conn, error) {
	fd, err := l.fd.accept()
	if err != nil {
		return nil, err
	}
	return sdpInner(fd), nil
}

func (l *sdpBelow) Close() error                          { return l.fd.Close() }
func (l *sdpBelow) Addr() inner.Addr                      { return sdpAddr(l.fd.laddr) }
func (l *sdpBelow) SetDeadline(t time.Time) error         { return l.fd.SetDeadline(t) }
func (l *sdpBelow) SyscallConn() (syscall.RawConn, error) { return newRawListener(l.fd), nil }
func (l *sdpBelow) File() (*os.File, error)               { return l.fd.dup() }

func (fd *netFD) sdpAccept() (*netFD, error) {
	if fd.sdp.closed.Load() { // the library would return what it has accepted before
		return nil, ErrClosed
	}
	c, err := fd.sdp.listener().Accept()
	if err != nil {
		return nil, sdpError("accept", err)
	}
	up, ok := c.(*sdp.Conn)
	if !ok {
		return inner.OwnerOf(c).(*netFD), nil // for sdpAccepted
	}
	sdpUp(up)
	sock := inner.OwnerOf(up.Under()).(*netFD)
	return (&TCPConn{conn{sock}}).sdpConn(up, "", "accept").fd, nil
}

var sdpOnce sync.Once

// sdpUp notes a connection. Those of SDP over RDMA have something to deliver when the process ends.
func sdpUp(c *sdp.Conn) {
	if c != nil && c.OverRDMA() {
		sdpOnce.Do(func() { exithook.Add(exithook.Hook{F: sdpExit, RunOnFailure: true}) })
	}
}

// sdpExiting is set when the process ends.
var sdpExiting atomic.Bool

// sdpExit delivers what was written to connections that the program has not closed.
func sdpExit() {
	sdpExiting.Store(true)
	sdp.CloseAll(2 * time.Second)
}

// sdpHold does not return if the process ends. Over TCP a process that exits is gone before a call on a
// connection sees it. Here sdpExit closes connections while goroutines still use them, and what these
// would do about the error, such as a panic, is not the program's end.
func sdpHold() {
	if sdpRDMA && sdpExiting.Load() {
		select {}
	}
}
