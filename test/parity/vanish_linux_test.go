package parity

import (
	"net"
	"sync/atomic"
	"syscall"
	"time"

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
	{name: "processor time of 300 closes towards vanished hosts", stacks: vanishing, waits: true, limit: 3 * time.Minute, run: func(r *run) {
		const conns, most = 300, 0.02 * raceFactor
		ln, err := r.Listen()
		check(err)
		inTime, share := 0, 1.0
		for tries := 0; tries < 3 && (inTime < conns || share >= most); tries++ { // on a busy machine everything takes longer
			inTime, share = r.closeTowardsVanished(ln, conns)
		}
		r.must("every Close returns nil within a second", inTime == conns)
		r.must("they take less than 2 % of a processor", share < most)
	}},
}

// closeTowardsVanished closes new connections to hosts that have vanished. It returns how many of the
// calls returned within a second, and the share of a processor that was used in five.
func (r *run) closeTowardsVanished(ln net.Listener, conns int) (inTime int, share float64) {
	var closed, vanished []conn
	for range conns {
		c, s := r.connect(ln)
		_, err := s.Write(bytesOf(1))
		check(err)
		check(readByte(c))
		vanish(s)
		_, err = c.Write(bytesOf(1000))
		check(err)
		closed, vanished = append(closed, c), append(vanished, s)
	}
	const span = 5 * time.Second
	begin, before := time.Now(), processorTime()
	var returned atomic.Int64
	for _, c := range closed {
		go func() {
			check(c.Close())
			if time.Since(begin) < time.Second {
				returned.Add(1)
			}
		}()
	}
	time.Sleep(time.Until(begin.Add(span)))
	share = float64(processorTime()-before) / float64(time.Since(begin))
	r.log("%.2f %% of a processor, %d of %d closes within a second", 100*share, returned.Load(), conns)
	for _, s := range vanished { // which ends the connections
		check(s.SetLinger(0))
		go s.Close()
	}
	return int(returned.Load()), share
}

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	var u unix.Rusage
	check(unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
