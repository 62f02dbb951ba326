package handshake

import (
	"context"
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/gosdp/gosdp/rdma/iwarp"
)

const (
	// fionread asks how many bytes have arrived (winsock2.h).
	fionread = 0x4004667F
	// peekInterval is the time between two peeks: Windows reports an arrival only after
	// earlier bytes have been read.
	peekInterval = time.Millisecond
)

func waitFirst(ctx context.Context, _ net.Conn, rc syscall.RawConn) verdict {
	tick := time.NewTicker(peekInterval)
	defer tick.Stop()
	b := make([]byte, iwarp.KeyLen)
	for {
		v := isPlain
		over := ctx.Err() != nil
		rc.Control(func(fd uintptr) { _, v = peek(fd, b) })
		if v != undecided || over {
			return v
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// peek copies what has arrived to b, which has room for a key, and returns what it means. It
// asks for the number of bytes first, because the socket would block if there were none.
func peek(socket uintptr, b []byte) (int, verdict) {
	s := windows.Handle(socket)
	var there, n uint32
	err := windows.WSAIoctl(s, fionread, nil, 0, (*byte)(unsafe.Pointer(&there)), 4, &n, nil, 0)
	if err != nil {
		return 0, isPlain
	}
	if there == 0 {
		return 0, undecided
	}
	buf := windows.WSABuf{Len: uint32(len(b)), Buf: unsafe.SliceData(b)}
	flags := uint32(windows.MSG_PEEK)
	if err := windows.WSARecv(s, &buf, 1, &n, &flags, nil, nil); err != nil {
		return 0, isPlain
	}
	return int(n), judge(b[:n])
}

// failed returns true: a peek does not tell a reset from an end.
func failed(uintptr) bool { return true }
