//go:build linux

package shm

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma"
)

// offer is a new channel at the client's end: a socket on which only the server should connect. Its
// name is random, is sent only with the Request, and is used for one connection.
type offer struct {
	ticket rdma.Ticket
	at     string
	in     *meetingDir // nil: the socket is abstract
	cfg    rdma.ChannelConfig
	ln     int // the listening socket, which refuses descriptors

	probe *probe // nil: the program does not want reach

	area *area // for the channel; nil: not made yet
	file int

	came files // accepted connections that are not the server's, until Drop
}

// backlog is how many connections to an offer may wait: the server's, and those of strangers that
// saw the name in /proc/net/unix and were faster. The kernel refuses more.
const backlog = 128

// Offer makes a new channel; see rdma.Offerer.
func (device) Offer(at string, cfg rdma.ChannelConfig) (rdma.Offer, error) {
	if heldUp() {
		return nil, errAside
	}
	if err := mapped.fits(); err != nil {
		return nil, err
	}
	o := &offer{ticket: newTicket(), at: at, cfg: cfg}
	var err error
	if cfg.ZeroCopy {
		k, _ := halves(o.ticket)
		o.probe = newProbe(k.probe())
		setProbe(&o.ticket, o.probe.address())
	}
	if o.in, err = openMeetingDir(cfg.Dir); err != nil {
		return nil, err
	}
	if o.ln, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	refuseRights(o.ln)
	if err = descriptorFits(o.ln); err == nil {
		err = inline(o.ln)
	}
	if err == nil {
		err = o.listen()
	}
	if err != nil {
		closeAside(files{o.ln}) // strangers may have connected
		return nil, err
	}
	return o, nil
}

// listen binds the socket to the name in the ticket, and listens.
func (o *offer) listen() error {
	if o.in != nil {
		return o.in.bind(o.ln, &o.ticket, o.cfg.UIDs)
	}
	_, socket := halves(o.ticket)
	if err := unix.Bind(o.ln, &unix.SockaddrUnix{Name: socket}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	return os.NewSyscallError("listen", unix.Listen(o.ln, backlog))
}

// Ticket returns the ticket for the Request.
func (o *offer) Ticket() rdma.Ticket { return o.ticket }

// Prepare makes the memory; see rdma.Offer.
func (o *offer) Prepare() {
	if o.area == nil {
		o.area, o.file, _ = newArea() // if it fails, Take says so
	}
	shmdir.MayMeet(os.Geteuid(), os.Geteuid(), nil) // the first call reads a file
}

// Drop ends the offer. A server that has connected finds that its connection is closed.
func (o *offer) Drop() {
	o.refuse()
	o.end()
}

// refuse makes the socket refuse further connections.
func (o *offer) refuse() {
	unix.Shutdown(o.ln, unix.SHUT_RDWR)
	if o.in != nil {
		o.in.remove(&o.ticket)
	}
}

// end closes the connections to the socket, then the socket, and frees the memory unless a link has
// it.
func (o *offer) end() {
	if len(o.came) > 0 {
		closeAside(o.came) // they may hold descriptors, and closing those may block
	}
	var err error
	for err == nil || err == unix.EINTR || err == unix.ECONNABORTED {
		var fd int
		if fd, _, err = unix.Accept4(o.ln, unix.SOCK_CLOEXEC); err == nil {
			closeAside(files{fd})
		}
	}
	if err == unix.EAGAIN || err == unix.EINVAL { // nobody is left
		unix.Close(o.ln)
	} else {
		closeAside(files{o.ln})
	}
	if o.area != nil {
		unix.Close(o.file)
		o.area.unmap()
	}
}

// errNobody is the error if the Reply says that the channel is open, but the server has not connected.
var errNobody = errors.New("shm: peer did not connect")

// Take opens the channel with the server, which has connected; see rdma.Offer.
func (o *offer) Take(ord int) (rdma.QueuePair, error) {
	o.refuse()
	why := errNobody
	for {
		fd, _, err := unix.Accept4(o.ln, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch {
		case err == unix.EINTR || err == unix.ECONNABORTED:
			continue
		case err == unix.EAGAIN || err == unix.EINVAL: // there are no more
			return nil, why
		case err != nil:
			return nil, os.NewSyscallError("accept4", err)
		}
		o.came = append(o.came, fd)
		if err := descriptorFits(fd); err != nil { // strangers may have connected
			return nil, err
		}
		q, err := o.join(fd, ord)
		if err == nil {
			o.end()
			return q, nil
		}
		why = err
	}
}

// join opens the channel over the connection accepted last, if it is the server's. The server is
// told last, when nothing can fail any more.
func (o *offer) join(fd int, ord int) (*QueuePair, error) {
	k, _ := halves(o.ticket)
	pid, uid, err := credentials(fd, o.cfg.UIDs)
	var theirs sight
	if err == nil {
		theirs, err = k.readMeeting(fd)
	}
	if err == nil && o.area == nil {
		o.area, o.file, err = newArea()
	}
	if err == nil {
		err = openDoorbell(fd, o.area, 0)
	}
	if err != nil {
		return nil, err
	}
	var flags byte
	if o.probe != nil && theirs.flags&canRead != 0 && reachable(pid, uid) && theirs.visible(pid) {
		flags = canRead
	}
	conn := os.NewFile(uintptr(fd), "peer")
	o.came = o.came[:len(o.came)-1] // it belongs to the link now
	l := &link{
		conn: conn, area: o.area, pid: pid, uid: uid, reach: flags&canRead != 0, zeroCopy: o.cfg.ZeroCopy,
		id: k, at: o.at,
	}
	if o.at != "" {
		l.pool = &dialled
	}
	file := o.file
	o.area = nil // so does the area
	defer unix.Close(file)
	q, err := l.begin(o.cfg, ord)
	if err != nil {
		return nil, err
	}
	if err := say(fd, k.decision(flags), unix.UnixRights(file)); err != nil {
		q.Abort()
		return nil, err
	}
	return q, nil
}
