package rdmatest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// scenes are what RunApart checks.
var scenes = []scene{
	{name: "Messages", a: exchange, b: exchange},
	{name: "Reads", a: readThere, b: readThere},
	{name: "Writes", a: writeThere, b: writeThere},
	{name: "Invalidate", a: writeWhileInvalidated, b: invalidateWhileWritten},
	{name: "Backpressure", a: overfillThere, b: drainHere},
	{name: "Buffers", a: sendToHolder, b: holdAll},
	{name: "Close", a: sendAndClose, b: receiveToEnd},
	{name: "Abort", a: abortThere, b: findReset},
	{name: "KilledIdle", a: killIdle, b: sendAndDie, kills: true},
	{name: "KilledWhileRead", a: killWhileRead, b: exposeAndDie, kills: true},
	{name: "KilledUnread", a: killUnread, b: dieUnread, kills: true},
}

// exchange sends random messages in batches while the other role does so, and receives the other's.
func exchange(r *role) {
	r.collect()
	seed := uint64(0)
	if r.name == "a" {
		seed = newSeed(r.t)
		r.line.Say(seed)
	} else {
		r.line.Hear(&seed)
	}
	plan := func(number uint64) *script {
		return &script{rng: newRand(seed + number), seq: 1000 * number, count: 1000, bytes: (16 << 20) / lighter, max: r.size}
	}
	out, in := plan(0), plan(1)
	if r.name == "b" {
		out, in = in, out
	}
	for more := true; more; r.line.Meet() { // at which every buffer has been released
		more = batchOf(out, r.send)
		more = batchOf(in, func(want []byte) { r.expect(want) }) || more
	}
}

// batchOf does something with the next messages of a script, at most one for each receive buffer, and
// reports whether there are more.
func batchOf(s *script, do func(msg []byte)) bool {
	for range window {
		msg := s.next()
		if msg == nil {
			return false
		}
		do(msg)
	}
	return true
}

// trade tells the other role about a region, and returns the other role's.
func (r *role) trade(mine rdma.Region) (theirs rdma.Region) {
	r.line.Say(mine)
	r.line.Hear(&theirs)
	return theirs
}

// number is 0 for role a and 1 for role b, and other the opposite, so their contents differ.
func (r *role) number() uint64 {
	if r.name == "a" {
		return 0
	}
	return 1
}

func (r *role) other() uint64 { return 1 - r.number() }

// there are sizes to read and to write; the last is that of the regions.
var there = []int{1, 100, 4097, 65_537, 1_000_001}

const thereSize = 1_000_001

// readThere reads from the memory of the other role, which does the same.
func readThere(r *role) {
	r.collect()
	source := r.exposeContents(contents(r.number(), thereSize), thereSize, rdma.RemoteRead)
	from := r.trade(source.Region)
	x := transfers{e: r.end}
	for _, n := range there {
		at := thereSize - n
		arena, local := embed(n)
		must(r.t, x.read(local, from.STag, from.VA+uint64(at), nil))
		must(r.t, x.finish())
		checkMemory(r.t, "what was read", local, contents(r.other(), thereSize)[at:])
		checkMargins(r.t, "what was read", arena)
	}
}

// writeThere writes to the memory of the other role, which does the same.
func writeThere(r *role) {
	r.collect()
	x := transfers{e: r.end}
	for _, n := range there {
		target := r.expose(thereSize, rdma.RemoteWrite)
		to := r.trade(target.Region)
		at := thereSize - n
		must(r.t, x.write(contents(r.number(), thereSize)[at:], to.STag, to.VA+uint64(at), nil))
		must(r.t, x.finish())
		r.send([]byte("written"))
		r.expect([]byte("written"))
		want := bytes.Repeat([]byte{blank}, thereSize)
		copy(want[at:], contents(r.other(), thereSize)[at:])
		checkMemory(r.t, "what was written", target.mem, want)
		checkMargins(r.t, "what was written", target.arena)
	}
}

// writeWhileInvalidated keeps writing until the other role ends that.
func writeWhileInvalidated(r *role) {
	r.collect()
	var to rdma.Region
	r.line.Hear(&to)
	writeOn(r.end, exposed{Region: to, mem: make([]byte, thereSize)})
	r.expectFailure()
	r.line.Meet()
}

func invalidateWhileWritten(r *role) {
	r.collect()
	target := r.expose(thereSize, rdma.RemoteWrite)
	r.line.Say(target.Region)
	r.expect([]byte("going"))
	r.Invalidate(target.STag)
	snapshot := bytes.Clone(target.arena)
	r.expectViolated()
	r.line.Meet() // nothing is written any more
	checkMemory(r.t, "invalidated memory", target.arena, snapshot)
	checkMargins(r.t, "invalidated memory", target.arena)
}

// manyBuffers provides as many receive buffers as overfill does.
func (r *role) manyBuffers() (count uint64) {
	if !r.Limits().Elastic {
		return window
	}
	r.ProvideReceive(plenty, r.size)
	return plenty
}

// overfillThere sends to an end that does not call Poll until the device is Busy or, with hardware,
// until all of its buffers are full.
func overfillThere(r *role) {
	l := &backlog{from: r.end, buffers: r.manyBuffers()} // the other role has as many
	r.line.Meet()
	for l.fillOne() {
	}
	r.line.Say(l.taken)
	must(r.t, r.WaitRoom())
	r.line.Meet() // everything was received
	r.send([]byte("behind"))
}

func drainHere(r *role) {
	l := &backlog{from: r.end, to: r.end, buffers: r.manyBuffers()}
	r.line.Meet()
	r.line.Hear(&l.taken)
	r.collect()
	l.expect()
	r.line.Meet()
	r.expect([]byte("behind"))
}

// released is how many buffers the holder releases.
const released = 10

// sendToHolder sends as much as there are buffers for, each time the other role has released some, and
// then one message more.
func sendToHolder(r *role) {
	r.collect()
	for k := range uint64(window) {
		r.send(contents(k, 100))
	}
	r.line.Meet()
	for k := range uint64(released) {
		r.send(contents(k, 200))
	}
	r.line.Meet()
	r.send(contents(0, 300))
	r.expectFailure()
}

func holdAll(r *role) {
	r.collect()
	var held []rdma.Buffer
	var copies [][]byte
	hold := func(want []byte) {
		held = append(held, r.hold(want).Buffer)
		copies = append(copies, want)
	}
	for k := range uint64(window) {
		hold(contents(k, 100))
	}
	for _, h := range held[:released] {
		h.Release()
	}
	held, copies = held[released:], copies[released:]
	r.line.Meet()
	for k := range uint64(released) {
		hold(contents(k, 200))
	}
	r.line.Meet()
	r.expectViolated()
	checkLoans(r.t, held, copies)
}

// sendAndClose closes before the other role looks.
func sendAndClose(r *role) {
	for k := range uint64(window) {
		r.send(contents(k, 500))
	}
	must(r.t, r.Drain(soon))
	must(r.t, r.Close())
	r.line.Meet()
}

func receiveToEnd(r *role) {
	r.line.Meet()
	r.collect()
	for k := range uint64(window) {
		r.expect(contents(k, 500))
	}
	r.expectEnd(io.EOF)
	r.expectSticky()
}

func abortThere(r *role) {
	r.send([]byte("before"))
	r.line.Meet()
	must(r.t, r.Abort())
}

func findReset(r *role) {
	r.collect()
	r.expect([]byte("before"))
	r.line.Meet()
	r.expectFailure()
}

// expectDeath waits until the end has noticed that the peer's process is gone, and checks that every
// later call says so.
func (r *role) expectDeath() {
	r.t.Helper()
	if err := r.ended(); err == nil || errors.Is(err, net.ErrClosed) {
		r.t.Errorf("the peer's process was killed, and Wait returned %v", err)
	}
	r.expectSticky()
	for deadline := enough(); ; time.Sleep(time.Millisecond) {
		if _, err := r.PostSend([]rdma.SendWR{message([]byte("x"), 1)}); err != nil && !errors.Is(err, rdma.ErrNoRoom) {
			break
		}
		select {
		case <-deadline:
			r.t.Fatal("the peer's process was killed, and PostSend goes on")
		default:
		}
	}
	if err := r.WaitRoom(); err == nil {
		r.t.Error("the peer's process was killed, and WaitRoom returned nil")
	}
}

// killIdle kills the other role after it has sent, and looks for that afterwards.
func killIdle(r *role) {
	r.send([]byte("begin"))
	r.line.Meet()
	r.kill()
	r.collect()
	if r.Limits().Outlives {
		for k := range uint64(window) {
			r.expect(contents(k, 500))
		}
	}
	r.expectDeath()
}

func sendAndDie(r *role) {
	r.collect()
	r.expect([]byte("begin"))
	for k := range uint64(window) {
		r.send(contents(k, 500))
	}
	must(r.t, r.Settle())
	r.line.Meet()
	r.line.untilKilled()
}

// killWhileRead kills the other role between, or in the middle of, Reads from its memory. Reads that
// complete are correct.
func killWhileRead(r *role) {
	r.collect()
	var from rdma.Region
	r.line.Hear(&from)
	x, local := transfers{e: r.end}, make([]byte, thereSize)
	for k := 0; ; k++ {
		if k == 3 {
			r.kill()
		}
		if errors.Join(x.read(local, from.STag, from.VA, nil), x.finish()) != nil {
			break
		}
		checkMemory(r.t, "what was read", local, contents(1, thereSize))
	}
	r.expectDeath()
}

func exposeAndDie(r *role) {
	r.collect()
	source := r.exposeContents(contents(1, thereSize), thereSize, rdma.RemoteRead)
	r.line.Say(source.Region)
	r.line.untilKilled()
}

// killUnread kills the other role while this one waits for it to receive something.
func killUnread(r *role) {
	l := &backlog{from: r.end, buffers: r.manyBuffers()}
	r.line.Meet()
	l.fill()
	returned := background(func() {
		for r.WaitRoom() == nil { // there is room because the other end is gone
			if _, err := r.PostSend([]rdma.SendWR{message(l.message(0), 16)}); err != nil {
				return
			}
		}
	})
	if !parked(returned) {
		r.t.Error("WaitRoom returns while nobody takes anything")
	}
	r.collect()
	r.kill()
	select {
	case <-returned:
	case <-enough():
		r.t.Fatal("the peer's process was killed, and WaitRoom does not return")
	}
	r.expectDeath()
}

func dieUnread(r *role) {
	r.manyBuffers()
	r.line.Meet()
	r.line.untilKilled()
}
