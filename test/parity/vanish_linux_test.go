package parity

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// vanish makes this end's host vanish for the other end: a socket filter drops every arriving
// segment, so nothing is acknowledged. This does not apply to shm, where both ends are on one
// host.
func vanish(c syscall.Conn) {
	raw, err := c.SyscallConn()
	check(err)
	var failed error
	check(raw.Control(func(fd uintptr) {
		filter := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K} // accepts 0 bytes
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: 1, Filter: &filter})
	}))
	check(failed)
}

var vanishing = []string{"net", "iwarp"} // stacks over which a host can vanish

var vanishScripts = []script{
	{name: "close towards a vanished host", stacks: vanishing, run: func(r *run) {
		c, s := r.pair()
		vanish(s)
		r.note("Write", describeCall(c.Write))
		r.note("Close", timed(c.Close))
	}},
	{name: "linger 1 towards a vanished host", stacks: vanishing, run: func(r *run) {
		c, s := r.pair()
		vanish(s)
		r.note("Write", describeCall(c.Write))
		check(c.SetLinger(1))
		r.note("Close", timed(c.Close))
	}},
}
