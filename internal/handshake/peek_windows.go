package handshake

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// fionbio sets whether a socket blocks (winsock2.h).
const fionbio = 0x8004667E

// peek copies what has arrived to b, which has room for a key, and returns what it means. The socket
// must not block meanwhile, because that also tells an end from silence. Package net's calls do not
// depend on the mode.
func peek(socket uintptr, b []byte) verdict {
	s := windows.Handle(socket)
	if blocking(s, false) != nil {
		return isPlain
	}
	defer blocking(s, true)
	var n uint32
	buf := windows.WSABuf{Len: uint32(len(b)), Buf: unsafe.SliceData(b)}
	flags := uint32(windows.MSG_PEEK)
	err := windows.WSARecv(s, &buf, 1, &n, &flags, nil, nil)
	switch {
	case err == windows.WSAEWOULDBLOCK:
		return undecided
	case err != nil || n == 0:
		return isPlain
	}
	return judge(b[:n])
}

func blocking(s windows.Handle, is bool) error {
	nonblocking, n := uint32(1), uint32(0)
	if is {
		nonblocking = 0
	}
	return windows.WSAIoctl(s, fionbio, (*byte)(unsafe.Pointer(&nonblocking)), 4, nil, 0, &n, nil, 0)
}
