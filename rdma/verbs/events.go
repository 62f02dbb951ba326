//go:build linux && cgo

package verbs

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// eventLoop reads the events of rdma_cm and of the devices, for all connections of this process. It
// has a goroutine for rdma_cm and one for each device, as long as a connection or an acceptor needs
// them. These goroutines distribute events and do nothing slow; the dispatcher makes the system
// calls that events lead to.
type eventLoop struct {
	channel *C.struct_v_event_channel
	files   []*os.File
	readers sync.WaitGroup
	work    dispatcher

	// asyncMu is held from taking an asynchronous event until its queue pair has it, so that a
	// goroutine that finds no event (lookAsync) knows that the earlier ones have arrived. It
	// comes before mu, and nothing blocks while it is held.
	asyncMu sync.Mutex

	// destroying is read-held while a queue pair is destroyed, and held while an event of rdma_cm
	// is taken: rdma_get_cm_event itself modifies the queue pair of the event's id, and looks for
	// it without a lock. Any number of queue pairs may be destroyed at a time, and the goroutine
	// that takes events waits only for those that are being destroyed already. It comes after all
	// other locks. The call that takes an event does not wait for events.
	destroying sync.RWMutex

	mu      sync.Mutex
	last    uint64
	ids     map[uint64]*cmID
	watched map[*C.struct_v_context]bool

	// deaf is closed when no more events of rdma_cm can be read, for the reason that is in why
	// from then on; see deafen. It is closed with mu held.
	deaf chan struct{}
	why  error
}

// current is the event loop that runs, and the number of its users.
var current struct {
	sync.Mutex
	*eventLoop
	users int
	// kept has the devices that stay open; see watch. So no other device has their address.
	kept map[*C.struct_v_context]bool
}

// acquire returns the event loop, which the caller must release.
func acquire() (*eventLoop, error) {
	if err := load(); err != nil {
		return nil, err
	}
	if err := sameCredentials(); err != nil {
		return nil, fmt.Errorf("verbs: %w", err)
	}
	current.Lock()
	defer current.Unlock()
	if current.users == 0 {
		e := &eventLoop{ids: make(map[uint64]*cmID), watched: make(map[*C.struct_v_context]bool), deaf: make(chan struct{})}
		if errno := C.v_create_event_channel(&e.channel); errno != 0 {
			return nil, fmt.Errorf("verbs: rdma_cm: create event channel: %w", syscall.Errno(errno))
		}
		if err := e.read(int(e.channel.fd), e.nextCM, e.deafen); err != nil {
			C.v_destroy_event_channel(e.channel)
			return nil, err
		}
		current.eventLoop = e
	}
	current.users++
	return current.eventLoop, nil
}

// release ends the event loop with its last user.
func (e *eventLoop) release() {
	current.Lock()
	defer current.Unlock()
	current.users--
	if current.users > 0 {
		return
	}
	for _, f := range e.files {
		f.Close()
	}
	e.readers.Wait()
	e.work.wait() // for rejections, and for events of queue pairs that have ended
	C.v_destroy_event_channel(e.channel)
	current.eventLoop = nil
}

// pollable duplicates a descriptor of a library for the netpoller.
func pollable(fd int) (*os.File, syscall.RawConn, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(own, true)
	}
	if err != nil {
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(own), "verbs")
	rc, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, rc, nil
}

// retryTime is how long a reading goroutine waits after ENOMEM, before which no event was taken.
const retryTime = 10 * time.Millisecond

// read starts a goroutine that calls next whenever there is something to read. If next fails, the
// goroutine passes the error to failed, and ends.
func (e *eventLoop) read(fd int, next func() error, failed func(error)) error {
	f, rc, err := pollable(fd)
	if err != nil {
		return err
	}
	e.files = append(e.files, f)
	e.readers.Go(func() {
		for {
			var errno error
			err := rc.Read(func(uintptr) bool {
				errno = next()
				return errno != syscall.EAGAIN
			})
			switch {
			case err != nil:
				return // release has closed it
			case errno == nil, errno == syscall.EINTR:
			case errno == syscall.ENOMEM:
				time.Sleep(retryTime)
			default:
				failed(errno)
				return
			}
		}
	})
	return nil
}

// watch reads the asynchronous events of a device on which the caller has an id. librdmacm closes a
// removed device together with its last id. The reading goroutine would then wake up and find the
// device's memory freed. So a device that is watched is never closed: one stays open for each that
// was removed.
func (e *eventLoop) watch(c *C.struct_v_context) error {
	current.Lock()
	defer current.Unlock()
	if e.watched[c] {
		return nil
	}
	if !current.kept[c] {
		if errno := C.v_keep(c); errno != 0 {
			return fmt.Errorf("verbs: open device: %w", syscall.Errno(errno))
		}
		if current.kept == nil {
			current.kept = make(map[*C.struct_v_context]bool)
		}
		current.kept[c] = true
	}
	gone := func(error) {} // the device was removed, which rdma_cm reports
	if err := e.read(int(c.async_fd), func() error { return e.nextAsync(c) }, gone); err != nil {
		return err // the next queue pair tries again
	}
	e.watched[c] = true
	return nil
}

// lookAsync takes the pending asynchronous events. When it returns, all earlier ones have arrived.
func (e *eventLoop) lookAsync(c *C.struct_v_context) {
	for e.nextAsync(c) == nil {
	}
}

func (e *eventLoop) nextAsync(c *C.struct_v_context) error {
	kind, err := e.takeAsync(c)
	if err == nil && kind == C.V_EVENT_DEVICE_FATAL {
		for _, id := range e.on(c) {
			id.handle(cmEvent{kind: C.V_CM_DEVICE_REMOVAL})
		}
	}
	return err
}

// takeAsync takes an event, and tells the queue pair that it concerns, if any.
func (e *eventLoop) takeAsync(c *C.struct_v_context) (kind C.int, err error) {
	e.asyncMu.Lock()
	defer e.asyncMu.Unlock()
	var number C.uint64_t
	if errno := C.v_next_async(c, &kind, &number); errno != 0 {
		return 0, syscall.Errno(errno)
	}
	switch kind {
	case C.V_EVENT_QP_ACCESS_ERR, C.V_EVENT_QP_REQ_ERR, C.V_EVENT_QP_FATAL:
		if id := e.id(uint64(number)); id != nil {
			id.offended(kind)
		}
	case C.V_EVENT_CQ_ERR:
		if id := e.id(uint64(number)); id != nil {
			id.overrun()
		}
	}
	return kind, nil
}

// on returns the ids on a device.
func (e *eventLoop) on(c *C.struct_v_context) (all []*cmID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range e.ids {
		if id.c.verbs == c {
			all = append(all, id)
		}
	}
	return all
}

// openDevices returns what librdmacm has opened.
func openDevices() []*C.struct_v_context {
	var list [16]*C.struct_v_context
	n := C.v_contexts(&list[0], C.int(len(list)))
	return list[:n]
}

// deafen records that no more events of rdma_cm can be read. Everything that waits for one fails, and
// so do new ids, so that connections do without verbs; listeners are dropped. Open channels remain:
// what arrives on them needs no events, and if the device flushes their work, the peer has left. The
// next event loop begins anew, when all users of this one have gone.
func (e *eventLoop) deafen(errno error) {
	why := fmt.Errorf("verbs: rdma_cm: read events: %w", errno)
	if errno == syscall.EACCES {
		why = fmt.Errorf("verbs: rdma_cm: process credentials changed after RDMA was first used: %w", errno)
	}
	e.mu.Lock()
	e.why = why
	close(e.deaf)
	ids := slices.Collect(maps.Values(e.ids))
	e.mu.Unlock()
	for _, id := range ids {
		if id.lost != nil {
			id.lost(why)
		}
		if q := id.q.Load(); q != nil {
			q.reconsider()
		}
	}
}

// failed returns why there are no more events of rdma_cm, or nil.
func (e *eventLoop) failed() error {
	select {
	case <-e.deaf:
		return e.why
	default:
		return nil
	}
}

// cmEvent is an event of rdma_cm.
type cmEvent struct {
	kind     C.int
	status   int
	private  []byte
	ird, ord int
	id       *cmID // of a request
}

func (e *eventLoop) nextCM() error {
	var out C.struct_v_cm_out
	e.destroying.Lock()
	errno := C.v_next_cm_event(e.channel, &out)
	e.destroying.Unlock()
	if errno != 0 {
		return syscall.Errno(errno)
	}
	ev := cmEvent{
		kind:    out.event,
		status:  int(out.status),
		private: C.GoBytes(unsafe.Pointer(&out.private_data), out.private_len),
		ird:     int(out.responder_resources),
		ord:     int(out.initiator_depth),
	}
	id := e.id(uint64(out.context))
	if out.event == C.V_CM_CONNECT_REQUEST {
		ev.id = e.adopt(out.id)
		if id == nil {
			ev.id.rejectLater(errors.New("listener closed"))
			return nil
		}
	}
	if id != nil {
		id.handle(ev)
	}
	return nil
}

// cmID is an rdma_cm_id. Events find it by a number, because its address may be used again.
type cmID struct {
	e      *eventLoop
	c      *C.struct_v_cm_id
	number uint64
	events chan cmEvent              // while it is being connected; has room for all events
	q      atomic.Pointer[QueuePair] // nil until there is one
	later  eventQueue                // events that the dispatcher handles

	accepted bool // it came with a request

	// The event loop calls these for an id that listens. They do not block.
	accept func(cmEvent) // handles a request
	lost   func(error)   // the id gets no more requests
}

func (e *eventLoop) id(number uint64) *cmID {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ids[number]
}

// newID makes an id for dialling.
func (e *eventLoop) newID() (*cmID, error) { return e.create(&cmID{}) }

// newListener makes an id for listening.
func (e *eventLoop) newListener(accept func(cmEvent), lost func(error)) (*cmID, error) {
	return e.create(&cmID{accept: accept, lost: lost})
}

// create makes the rdma_cm_id of id. It calls the kernel without mu, which the goroutine that
// distributes events needs.
func (e *eventLoop) create(id *cmID) (*cmID, error) {
	if err := e.failed(); err != nil {
		return nil, err
	}
	id.e, id.number, id.events = e, e.number(), make(chan cmEvent, 8)
	if errno := C.v_create_id(e.channel, C.uint64_t(id.number), &id.c); errno != 0 {
		return nil, fmt.Errorf("verbs: rdma_cm: create id: %w", syscall.Errno(errno))
	}
	if err := e.enter(id); err != nil { // before there can be an event
		id.destroy()
		return nil, err
	}
	return id, nil
}

// adopt makes a cmID of the id that comes with a request.
func (e *eventLoop) adopt(c *C.struct_v_cm_id) *cmID {
	id := &cmID{e: e, c: c, number: e.number(), accepted: true, events: make(chan cmEvent, 8)}
	C.v_set_context(c, C.uint64_t(id.number))
	_ = e.enter(id) // there is an event just now
	return id
}

// number returns a number that no other id of this event loop has had.
func (e *eventLoop) number() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	return e.last
}

// enter makes the id known to events. It fails if there are none any more.
func (e *eventLoop) enter(id *cmID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ids[id.number] = id
	return e.failed()
}

// destroy waits for goroutines that handle events of the id.
func (id *cmID) destroy() {
	id.e.mu.Lock()
	delete(id.e.ids, id.number)
	id.e.mu.Unlock()
	C.v_destroy_id(id.c)
}

// handle handles an event, on a goroutine of the event loop. It does not block.
func (id *cmID) handle(ev cmEvent) {
	if id.accept != nil {
		id.heard(ev)
		return
	}
	if q := id.q.Load(); q != nil {
		switch ev.kind {
		// The kernel of a peer that leaves and has not received RTU rejects a connection that is open here.
		case C.V_CM_DISCONNECTED, C.V_CM_REJECTED:
			id.e.work.post(&id.later, func() { q.left(false) })
		case C.V_CM_DEVICE_REMOVAL:
			id.e.work.post(&id.later, func() { q.left(true) })
		}
	}
	select {
	case id.events <- ev:
	default: // no goroutine waits for it any more
	}
}

// heard handles an event of an id that listens.
func (id *cmID) heard(ev cmEvent) {
	switch ev.kind {
	case C.V_CM_CONNECT_REQUEST:
		id.accept(ev)
	case C.V_CM_DEVICE_REMOVAL:
		id.lost(errRemoved)
	case C.V_CM_ADDR_CHANGE: // a bond has failed over to another port
		id.lost(errMoved)
	}
}

// offended handles a violation by the peer that the device has found.
func (id *cmID) offended(kind C.int) {
	q := id.q.Load()
	// siw also reports this if it cannot answer a Read because the peer is gone.
	if q != nil && !(q.rnic && kind == C.V_EVENT_QP_REQ_ERR) {
		q.offended()
	}
}

// overrun handles the loss of the completion queue. The device may report nothing through it any more.
func (id *cmID) overrun() {
	if q := id.q.Load(); q != nil {
		id.e.work.post(&id.later, q.overrun)
	}
}

// address makes a sockaddr, which contains no pointer.
func address(a netip.AddrPort) (*[unix.SizeofSockaddrInet6]byte, error) {
	b := new([unix.SizeofSockaddrInet6]byte)
	ip := a.Addr().Unmap()
	if ip.Zone() != "" {
		return nil, errors.New("verbs: link-local addresses are not supported")
	}
	if ip.Is4() {
		s := (*unix.RawSockaddrInet4)(unsafe.Pointer(b))
		s.Family, s.Addr = unix.AF_INET, ip.As4()
	} else {
		s := (*unix.RawSockaddrInet6)(unsafe.Pointer(b))
		s.Family, s.Addr = unix.AF_INET6, ip.As16()
	}
	b[2], b[3] = byte(a.Port()>>8), byte(a.Port())
	return b, nil
}

// bind gives the id an address, and thereby a device.
func (id *cmID) bind(a netip.AddrPort) error {
	at, err := address(a)
	if err != nil {
		return err
	}
	if errno := C.v_bind(id.c, unsafe.Pointer(at)); errno != 0 {
		if errno == C.int(syscall.ENODEV) || errno == C.int(syscall.EADDRNOTAVAIL) {
			return fmt.Errorf("%v is not the address of an RDMA device", a.Addr())
		}
		return fmt.Errorf("verbs: rdma_cm: bind %v: %w", a.Addr(), syscall.Errno(errno))
	}
	return nil
}
