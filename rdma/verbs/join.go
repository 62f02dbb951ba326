//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"github.com/gosdp/gosdp/rdma"
)

// mostPrivate is how much private data a request can carry on every transport.
const mostPrivate = 56

// join is the end that dials:
//
//	addresses → device → route → queue pair → request: token, private data
//	                                        ← reply: the peer's private data
func join(ctx context.Context, a rdma.Address, cfg rdma.ChannelConfig, private []byte, settle func([]byte) (int, error)) (*QueuePair, error) {
	if len(a.Token)+len(private) > mostPrivate {
		return nil, fmt.Errorf("verbs: private data of %d bytes exceeds the maximum of %d", len(private), mostPrivate-len(a.Token))
	}
	if !a.Local.IsValid() || !a.Remote.IsValid() {
		return nil, errors.New("verbs: connection without IP addresses")
	}
	e, err := acquire()
	if err != nil {
		return nil, err
	}
	defer e.release() // the queue pair has its own
	said := append(a.Token[:len(a.Token):len(a.Token)], private...)
	var q *QueuePair
	err = withFreePort(func() error {
		q, err = e.connect(ctx, a, cfg, said, settle)
		return err
	})
	return q, err
}

// withFreePort tries again if a port is in use. rdma_cm chooses the port, and siw needs the same
// port of TCP, which rdma_cm does not check.
func withFreePort(try func() error) (err error) {
	for range 5 {
		if err = try(); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return err
}

// connect makes a queue pair and connects it.
func (e *eventLoop) connect(ctx context.Context, a rdma.Address, cfg rdma.ChannelConfig, said []byte, settle func([]byte) (int, error)) (*QueuePair, error) {
	id, err := e.newID()
	if err != nil {
		return nil, err
	}
	if a.TOS != 0 { // devices that have no such thing ignore it
		C.v_set_tos(id.c, C.uint8_t(a.TOS))
	}
	if err := id.resolve(ctx, a.Local, netip.AddrPortFrom(a.Remote, a.Port)); err != nil {
		id.destroy()
		return nil, err
	}
	q, err := newQueuePair(id, cfg)
	if err != nil {
		id.destroy()
		return nil, err
	}
	answer, err := q.request(ctx, said)
	if err != nil {
		return nil, err
	}
	if err := q.established(ctx, answer, settle); err != nil {
		q.Abort()
		return nil, err
	}
	return q, nil
}

// resolve finds the device and the route.
func (id *cmID) resolve(ctx context.Context, local netip.Addr, remote netip.AddrPort) error {
	from, err := address(netip.AddrPortFrom(local, 0))
	if err != nil {
		return err
	}
	to, err := address(remote)
	if err != nil {
		return err
	}
	ms := C.int(2000)
	if end, ok := ctx.Deadline(); ok {
		ms = C.int(max(1, time.Until(end).Milliseconds()))
	}
	if errno := C.v_resolve_addr(id.c, unsafe.Pointer(from), unsafe.Pointer(to), ms); errno != 0 {
		return fmt.Errorf("verbs: rdma_cm: resolve address %v: %w", remote.Addr(), syscall.Errno(errno))
	}
	if _, err := id.await(ctx, C.V_CM_ADDR_RESOLVED); err != nil {
		return err
	}
	if errno := C.v_resolve_route(id.c, ms); errno != 0 {
		return fmt.Errorf("verbs: rdma_cm: resolve route to %v: %w", remote.Addr(), syscall.Errno(errno))
	}
	_, err = id.await(ctx, C.V_CM_ROUTE_RESOLVED)
	return err
}

// requests limits the requests of this process over iWARP that have not been answered. There the kernel
// blocks the thread that ends a request until then: siw does while it connects its TCP socket (for
// minutes if packets are dropped, and no signal ends that; see v_connect), and while it waits for
// the peer's MPA Reply. So a request that takes too long is abandoned with its goroutine and thread.
var requests = make(chan struct{}, 16)

// request asks the peer for the channel, and returns its answer. It gives up the queue pair if there
// is none.
func (q *QueuePair) request(ctx context.Context, said []byte) (answer cmEvent, err error) {
	done := func() {}
	if q.rnic {
		select {
		case requests <- struct{}{}:
			done = func() { <-requests }
		case <-ctx.Done():
			q.Abort()
			return cmEvent{}, tooLong(ctx, C.V_CM_ESTABLISHED)
		}
	}
	end := func() {
		q.Abort()
		done()
	}
	taken := make(chan C.int)
	go func() {
		errno := C.v_connect(q.id.c, bytesPointer(said), C.int(len(said)), C.int(q.ird), C.int(q.mostORD))
		select {
		case taken <- errno:
		case <-ctx.Done():
			end()
		}
	}()
	select {
	case errno := <-taken:
		if errno != 0 {
			end()
			return cmEvent{}, fmt.Errorf("verbs: rdma_cm: connect: %w", syscall.Errno(errno))
		}
	case <-ctx.Done():
		return cmEvent{}, tooLong(ctx, C.V_CM_ESTABLISHED)
	}
	answer, err = q.id.await(ctx, C.V_CM_ESTABLISHED)
	switch {
	case err == nil:
		done()
	case ctx.Err() != nil, q.id.e.failed() != nil: // there may be no answer yet
		go end()
	default:
		end()
	}
	return answer, err
}

// established evaluates the peer's answer.
func (q *QueuePair) established(ctx context.Context, ev cmEvent, settle func([]byte) (int, error)) error {
	ord, err := settle(ev.private)
	if err != nil {
		return err
	}
	q.ord = min(ord, q.mostORD)
	if ev.ord > 0 {
		q.ord = min(q.ord, ev.ord)
	}
	if q.rnic {
		return q.exchangeRTR(ctx)
	}
	return nil
}

// await waits for an event of an id that is being connected.
func (id *cmID) await(ctx context.Context, want C.int) (cmEvent, error) {
	select {
	case <-ctx.Done():
		return cmEvent{}, tooLong(ctx, want)
	case <-id.e.deaf:
		return cmEvent{}, id.e.failed()
	case ev := <-id.events:
		if ev.kind == want {
			return ev, nil
		}
		return ev, ev.why(stages[want])
	}
}

// tooLong returns the error for an event that did not arrive in time.
func tooLong(ctx context.Context, want C.int) error {
	return fmt.Errorf("verbs: %s timed out: %w", stages[want], ctx.Err())
}

// stages says what is in progress until an event.
var stages = map[C.int]string{
	C.V_CM_ADDR_RESOLVED:  "resolving the address",
	C.V_CM_ROUTE_RESOLVED: "finding a route",
	C.V_CM_ESTABLISHED:    "connecting",
}

// why explains an event that was not expected.
func (ev cmEvent) why(stage string) error {
	status := ""
	if ev.status < 0 {
		status = ": " + syscall.Errno(-ev.status).Error()
	}
	switch ev.kind {
	case C.V_CM_ADDR_ERROR:
		return fmt.Errorf("verbs: address not reachable over RDMA%s", status)
	case C.V_CM_ROUTE_ERROR:
		return fmt.Errorf("verbs: no route to the peer%s", status)
	case C.V_CM_UNREACHABLE:
		return fmt.Errorf("verbs: peer unreachable%s", status)
	case C.V_CM_REJECTED:
		if text := printable(ev.private); text != "" {
			return fmt.Errorf("verbs: connection rejected by peer: %q", text)
		}
		return errors.New("verbs: connection refused by the peer's device")
	case C.V_CM_DISCONNECTED:
		return errors.New("verbs: peer closed the channel during setup")
	case C.V_CM_DEVICE_REMOVAL:
		return errRemoved
	}
	return fmt.Errorf("verbs: %s failed: rdma_cm event %d%s", stage, ev.kind, status)
}

// printable returns the text in private data, which rdma_cm pads.
func printable(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// bytesPointer lets C read b during one call.
func bytesPointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
