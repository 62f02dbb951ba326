//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// place is the end that listens. It has no socket, and connects to those of the clients.
type place struct {
	cfg   rdma.ChannelConfig
	links pool
}

// Close ends the place.
func (p *place) Close() error {
	p.links.close()
	return nil
}

// pending is a channel that the client has offered and not taken yet. It belongs to one goroutine.
type pending struct {
	place    *place
	token    token
	fd       int      // the socket, which accepts descriptors from the meeting until the memory file has arrived
	conn     *os.File // the same socket; nil: not made yet
	room     int      // a descriptor that keeps a number for the memory file; 0: none
	pid, uid int
	from     netip.Addr // the client's address
	ord      int
	mine     *probe         // nil: there is no reach
	space    unsafe.Pointer // for the memory; nil: none
	over     bool           // it is taken, or ended
}

// Meet connects to the client's socket and sends the meeting; see rdma.OfferListener. The meeting
// has arrived when the client gets the Reply.
func (p *place) Meet(peer rdma.Peer, t rdma.Ticket, ord int) (rdma.PendingOffer, error) {
	if heldUp() {
		return nil, errAside
	}
	if err := mapped.fits(); err != nil {
		return nil, err
	}
	w := &pending{place: p, from: peer.Remote.Addr(), ord: ord}
	in, err := meetingDirOf(&peer, p.cfg.Dir)
	if err != nil {
		return nil, err
	}
	var socket string
	w.token, socket = halves(t)
	if in != nil {
		w.fd, err = connectBy(func(fd int) error { return in.connect(fd, &t) })
	} else {
		w.fd, err = connect(socket)
	}
	if err != nil {
		unix.Close(w.fd) // nobody has accepted it
		return nil, err
	}
	if err := w.open(&peer, probeAddress(&t)); err != nil {
		return nil, err
	}
	return w, nil
}

// connect connects to a client's socket. It does not wait, and fails if strangers have filled the
// backlog. The socket may be a stranger's that has told its name to the place, so it accepts no
// descriptors. The caller must close the descriptor, even after an error.
func connect(socket string) (fd int, err error) {
	return connectBy(func(fd int) error {
		return os.NewSyscallError("connect", unix.Connect(fd, &unix.SockaddrUnix{Name: socket}))
	})
}

// connectBy is connect, for another way to name the socket.
func connectBy(to func(fd int) error) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	refuseRights(fd)
	if err = descriptorFits(fd); err == nil {
		err = inline(fd)
	}
	if err == nil {
		err = to(fd)
	}
	return fd, err
}

// open sends the meeting if the socket is the client's, whose probe is at the address. With an error
// it has ended the channel.
func (w *pending) open(peer *rdma.Peer, address uint64) (err error) {
	defer func() {
		if err != nil {
			w.Withdraw()
		}
	}()
	if w.pid, w.uid, err = credentials(w.fd, w.place.cfg.UIDs); err != nil {
		return err
	}
	if peer.PID != 0 && w.pid != peer.PID {
		return errors.New("shm: rendezvous socket belongs to another process than the client's")
	}
	// Neither memory nor a descriptor may be missing after the client has decided.
	space, err := reserve()
	if err != nil {
		return err
	}
	w.space = space
	if w.room, err = unix.FcntlInt(uintptr(w.fd), unix.F_DUPFD_CLOEXEC, 1); err != nil {
		w.room = 0
		return fmt.Errorf("shm: cannot reserve a file descriptor for the memfd: %w", err)
	}
	var ours sight
	if theirs := w.token.probe(); w.place.cfg.ZeroCopy && address != 0 && reachable(w.pid, w.uid) && try(w.pid, address, theirs[:]) {
		w.mine = randomProbe()
		ours = sightOf(w.mine)
	}
	passRights(w.fd, true)
	return say(w.fd, w.token.meeting(&ours), nil)
}

// say sends b, and descriptors if there are any, by one call.
func say(fd int, b, rights []byte) error {
	n, err := unix.SendmsgN(fd, b, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if err == nil && n < len(b) {
		return io.ErrShortWrite
	}
	return os.NewSyscallError("sendmsg", err)
}

// Decided reports whether the client's decision has arrived, or the client has closed the socket;
// see rdma.PendingOffer.
func (w *pending) Decided() bool {
	var b [1]byte
	err := error(unix.EINTR)
	for err == unix.EINTR {
		_, _, _, _, err = unix.Recvmsg(w.fd, b[:], nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}
	return err != unix.EAGAIN
}

// Take waits for the client's decision; see rdma.PendingChannel.
func (w *pending) Take(ctx context.Context) (rdma.QueuePair, error) {
	if w.over {
		return nil, net.ErrClosed
	}
	q, err := w.take(ctx)
	if err != nil {
		w.Withdraw()
		return nil, err
	}
	w.over = true
	return q, nil
}

func (w *pending) take(ctx context.Context) (*QueuePair, error) {
	flags, file, err := w.decision(ctx)
	runtime.KeepAlive(w.mine)
	switch {
	case errors.Is(err, errLeft), errors.Is(err, syscall.ECONNRESET):
		return nil, rdma.ErrDeclined
	case err != nil:
		return nil, err
	}
	a, err := w.accept(file)
	if err != nil {
		closeInBackground(files{file})
		return nil, err
	}
	unix.Close(file)
	w.space = nil // it belongs to the link now
	l := &link{
		conn: w.conn, area: a, way: 1, pid: w.pid, uid: w.uid, reach: w.mine != nil && flags&canRead != 0, zeroCopy: w.place.cfg.ZeroCopy,
		id: w.token, from: w.from, pool: &w.place.links,
	}
	return l.begin(w.place.cfg, w.ord)
}

// accept maps the memory file that has arrived. The socket accepts no further descriptors.
func (w *pending) accept(file int) (a *area, err error) {
	refuseRights(w.fd)
	if err = nothingQueued(w.fd); err == nil {
		a, err = openArea(file, w.space)
	}
	if err == nil {
		err = openDoorbell(w.fd, a, 1)
	}
	return a, err
}

// decision reads the client's decision. It registers the socket with the netpoller only now, so
// that the netpoller does not wake up for a decision for which a goroutine polls (Decided).
func (w *pending) decision(ctx context.Context) (flags byte, file int, err error) {
	flags, file, err = w.look()
	w.conn = os.NewFile(uintptr(w.fd), "peer")
	if err != unix.EAGAIN {
		return flags, file, err
	}
	wait := func() error {
		rc, failed := w.conn.SyscallConn()
		if failed == nil {
			failed = rc.Read(func(uintptr) bool {
				flags, file, err = w.look()
				return err != unix.EAGAIN
			})
		}
		return failed
	}
	stop := interrupted(ctx, w.conn)
	late := wait()
	stop()
	switch {
	case errors.Is(late, os.ErrDeadlineExceeded):
		return w.lastLook()
	case late != nil:
		err = late
	}
	return flags, file, err
}

// lastLook reads the decision after its time is over: it may have arrived while this process was
// stopped. If it has not, lastLook makes sure that the client cannot take the channel any more. What
// the client sends then fails, so both ends continue as plain TCP, however slow the client is. A
// decision that arrives between these two steps is an error, because the socket can no longer be a
// doorbell.
func (w *pending) lastLook() (flags byte, file int, err error) {
	if flags, file, err = w.look(); err != unix.EAGAIN {
		return flags, file, err
	}
	unix.Shutdown(w.fd, unix.SHUT_RD)
	if _, file, err = w.look(); err == nil {
		closeInBackground(files{file})
		err = errTooLate
	}
	return 0, -1, err
}

var errTooLate = errors.New("shm: handshake timed out, but the client has accepted the channel")

// look reads the decision if it has arrived, and returns EAGAIN if it has not. The memory file gets
// the number that was kept for it.
func (w *pending) look() (flags byte, file int, err error) {
	if !w.Decided() {
		return 0, -1, unix.EAGAIN
	}
	w.freeRoom()
	return w.token.readDecision(w.fd)
}

// freeRoom closes the descriptor that keeps a number. It is not the last one of the socket, so that
// does not block.
func (w *pending) freeRoom() {
	if w.room != 0 {
		unix.Close(w.room)
		w.room = 0
	}
}

// interrupted makes reads of conn fail when ctx is done; see interrupt.Conn.
func interrupted(ctx context.Context, conn *os.File) (stop func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	end := interrupt.On(ctx, func() { conn.SetReadDeadline(rnic.Past) })
	return func() {
		end()
		conn.SetReadDeadline(time.Time{})
	}
}

// Withdraw ends the channel, unless it was taken; see rdma.PendingChannel.
func (w *pending) Withdraw() {
	if w.over {
		return
	}
	w.over = true
	w.freeRoom()
	var socket io.Closer = files{w.fd}
	if w.conn != nil {
		socket = w.conn
	}
	closeInBackground(socket) // the client may have sent descriptors
	if w.space != nil {
		release(w.space)
	}
}
