package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bareRings returns why there are no bare rings here.
func bareRings() error { return nil }

func yieldProcessor() { syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// bareOffer tells the server of the memory for both directions.
type bareOffer struct {
	PID, FD, Size int
}

func listenBare(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	return bareListener{listener}, err
}

type bareListener struct{ net.Listener }

func (l bareListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	var offer bareOffer
	if err := json.NewDecoder(bufio.NewReader(conn)).Decode(&offer); err != nil {
		return nil, err
	}
	pid, err := unix.PidfdOpen(offer.PID, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(pid)
	fd, err := unix.PidfdGetfd(pid, offer.FD, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_getfd", err)
	}
	return newBareConn(conn, fd, offer.Size, false)
}

func dialBare(ctx context.Context, address string, load Case) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	size := bareSize(load)
	fd, err := unix.MemfdCreate("bench", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	if err := unix.Ftruncate(fd, 2*int64(bareHeader+size)); err != nil {
		return nil, os.NewSyscallError("ftruncate", err)
	}
	if err := json.NewEncoder(conn).Encode(bareOffer{os.Getpid(), fd, size}); err != nil {
		return nil, err
	}
	return newBareConn(conn, fd, size, true)
}

// newBareConn maps both rings. The first one is that to the server.
func newBareConn(conn net.Conn, fd, size int, client bool) (net.Conn, error) {
	each := bareHeader + size
	mem, err := unix.Mmap(fd, 0, 2*each, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	c := &bareConn{Conn: conn, out: newBareRing(mem[:each]), in: newBareRing(mem[each:])}
	if !client {
		c.in, c.out = c.out, c.in
	}
	return c, nil
}

func newBareRing(mem []byte) bareRing {
	return bareRing{
		head:  (*atomic.Uint64)(unsafe.Pointer(&mem[0])),
		tail:  (*atomic.Uint64)(unsafe.Pointer(&mem[bareLine])),
		ended: (*atomic.Uint32)(unsafe.Pointer(&mem[2*bareLine])),
		data:  mem[bareHeader:],
	}
}
