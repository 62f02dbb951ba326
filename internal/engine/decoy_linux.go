package engine

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// decoyBytes is how many unread bytes the decoy shows at most. gRPC reads as many at a time.
const decoyBytes = 32 << 10

// decoy is a socket from which a callback of RawConn.Read reads unread bytes. The connection keeps
// it between calls, until Close, while the callbacks read all that it has.
type decoy struct {
	*decoyPair // nil: none is open
}

type decoyPair [2]int

// show calls f with the descriptor of a socket from which head can be read, and then nothing, or an
// end if ended is set. It returns how many bytes f has read.
func (d *decoy) show(head []byte, ended bool, f func(fd uintptr) bool) (done bool, taken int, err error) {
	p := d.decoyPair
	d.decoyPair = nil // f may panic
	if p == nil {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return false, 0, err
		}
		p = (*decoyPair)(&pair)
		runtime.SetFinalizer(p, (*decoyPair).close)
	}
	defer func() {
		if d.decoyPair == nil {
			p.close()
		}
	}()
	if len(head) > 0 {
		n, err := unix.Write(p[1], head)
		if err != nil {
			return false, 0, err
		}
		head = head[:n]
	}
	if ended {
		unix.Shutdown(p[1], unix.SHUT_WR)
	}
	done = f(uintptr(p[0]))
	if len(head) > 0 {
		left, err := unix.IoctlGetInt(p[0], unix.SIOCINQ)
		if err != nil {
			return done, 0, err
		}
		taken = len(head) - left
	}
	if taken == len(head) && !ended {
		d.decoyPair = p
	}
	return done, taken, nil
}

// close closes the descriptors, if some are open.
func (d *decoy) close() {
	if d.decoyPair != nil {
		d.decoyPair.close()
		d.decoyPair = nil
	}
}

func (p *decoyPair) close() {
	runtime.SetFinalizer(p, nil)
	unix.Close(p[0])
	unix.Close(p[1])
}
