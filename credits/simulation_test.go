package credits

import (
	"math/rand/v2"
	"testing"
)

// frame is a message between the two ends of the simulation.
type frame struct {
	mseq, ack uint32
	bufs      uint16
	payload   bool
}

// end is one end of the simulation: an account, and beside it the receive queue
// that it speaks of.
type end struct {
	Account
	queue int  // buffers that are really posted
	held  int  // buffers whose payload the program has not read yet
	toGo  int  // payload messages still to be sent
	talks bool // it also sends messages without payload, at any time
	got   int  // payload messages received
	wire  []frame
	open  []frame // stamped and not yet closed by Sent
	gone  int     // of those, already on the wire
}

// connect returns two ends with n payload messages to send each, numbered from
// near the wrap-around.
// Each has at least so many buffers.
func connect(r *rand.Rand, least, n int) [2]*end {
	bufs := [2]int{least + r.IntN(8), least + r.IntN(8)}
	start := uint32(0) - uint32(r.IntN(50))
	var ends [2]*end
	for i := range ends {
		a := at(start, uint16(bufs[1-i]), uint16(bufs[i]))
		ends[i] = &end{Account: a, queue: bufs[i], toGo: n}
	}
	return ends
}

// stamp opens a batch of as many messages as chance and the rules allow.
func (e *end) stamp(r *rand.Rand) {
	for range 1 + r.IntN(6) {
		var payload bool
		switch {
		case e.toGo > 0 && e.May(Payload):
			payload = true
			e.toGo--
		case e.batch == 0 && e.MustUpdate() && e.May(Update):
		case e.talks && r.IntN(20) == 0 && e.May(Bare):
		default:
			return
		}
		f := frame{payload: payload}
		f.mseq, f.ack, f.bufs = e.Next(uint32(len(e.open)))
		e.open = append(e.open, f)
	}
}

// leave puts the next stamped message on the wire.
func (e *end) leave() {
	if e.gone < len(e.open) {
		e.wire = append(e.wire, e.open[e.gone])
		e.gone++
	}
}

// close tells the account what has left, and takes the rest back.
func (e *end) close() {
	for _, f := range e.open[e.gone:] {
		if f.payload {
			e.toGo++
		}
	}
	e.Sent(e.gone)
	e.open, e.gone = e.open[:0], 0
}

// arrive takes the next message off the peer's wire.
func (e *end) arrive(t *testing.T, peer *end) {
	if len(peer.wire) == 0 {
		return
	}
	f := peer.wire[0]
	peer.wire = peer.wire[1:]
	if e.queue == 0 {
		t.Fatal("a message came and no buffer was posted")
	}
	e.queue--
	if err := e.Received(f.mseq, f.ack, f.bufs); err != nil {
		t.Fatal(err)
	}
	if f.payload {
		e.got++
		e.held++
	} else {
		e.post(1) // it needs no reading
	}
}

func (e *end) post(n int) {
	e.queue += n
	e.Post(n)
}

// read has the program read, and so release, some of what it holds.
func (e *end) read(n int) {
	e.held -= n
	e.post(n)
}

// step does one random thing at one end.
func step(t *testing.T, r *rand.Rand, e, peer *end) {
	switch r.IntN(5) {
	case 0:
		if len(e.open) == 0 {
			e.stamp(r)
		}
	case 1:
		e.leave()
	case 2:
		if r.IntN(2) == 0 && e.gone > 0 || e.gone == len(e.open) {
			e.close()
		}
	case 3:
		e.arrive(t, peer)
	case 4:
		if e.held > 0 {
			e.read(1 + r.IntN(e.held))
		}
	}
}

// seeds is how many random runs each test makes.
func seeds() uint64 {
	if testing.Short() {
		return 100
	}
	return 1000
}

// TestNoInterleavingOverruns: whatever the order in which two ends stamp, send,
// receive and read, every message finds a posted buffer, and no end takes the
// other for a violator.
func TestNoInterleavingOverruns(t *testing.T) {
	for seed := range seeds() {
		r := rand.New(rand.NewPCG(seed, 0))
		ends := connect(r, 3, 1<<30)
		ends[0].talks, ends[1].talks = true, true
		for range 5000 {
			i := r.IntN(2)
			step(t, r, ends[i], ends[1-i])
		}
	}
}

// TestBothEndsMakeProgress: two ends that flood each other and read now and
// then deliver everything, and fall silent when there is no more to send.
func TestBothEndsMakeProgress(t *testing.T) {
	const messages = 200
	for seed := range seeds() {
		r := rand.New(rand.NewPCG(seed, 1))
		ends := connect(r, 4, messages)
		for n := 0; ends[0].got < messages || ends[1].got < messages; n++ {
			if n == 1_000_000 {
				t.Fatalf("seed %d: stuck\n%+v\n%+v", seed, ends[0], ends[1])
			}
			i := r.IntN(2)
			step(t, r, ends[i], ends[1-i])
		}
		settle(t, ends, true)
	}
}

// TestOneWayStreamMakesProgress: an end that never has anything to say gives
// credit nevertheless.
func TestOneWayStreamMakesProgress(t *testing.T) {
	const messages = 200
	for seed := range seeds() {
		r := rand.New(rand.NewPCG(seed, 2))
		ends := connect(r, 4, 0)
		ends[0].toGo = messages
		for n := 0; ends[1].got < messages; n++ {
			if n == 1_000_000 {
				t.Fatalf("seed %d: stuck\n%+v\n%+v", seed, ends[0], ends[1])
			}
			i := r.IntN(2)
			step(t, r, ends[i], ends[1-i])
		}
		settle(t, ends, true)
	}
}

// TestStalledProgramsFallSilent: both programs write and neither reads. A
// message without payload from either does not set off updates without end.
func TestStalledProgramsFallSilent(t *testing.T) {
	for seed := range seeds() {
		r := rand.New(rand.NewPCG(seed, 3))
		ends := connect(r, 5, 1<<30)
		for range 2 {
			for i, e := range ends {
				for e.May(Payload) {
					e.send(true)
				}
				for len(e.wire) > 0 {
					ends[1-i].arrive(t, e)
				}
			}
		}
		for range 10 {
			if e := ends[r.IntN(2)]; e.May(Bare) {
				e.send(false)
			}
			settle(t, ends, false)
		}
	}
}

// send sends one message at once.
func (e *end) send(payload bool) {
	f := frame{payload: payload}
	f.mseq, f.ack, f.bufs = e.Next(0)
	e.Sent(1)
	e.wire = append(e.wire, f)
}

// settle lets two ends without payload finish what is under way, and fails if
// they go on updating each other. The programs read, or they do not.
func settle(t *testing.T, ends [2]*end, read bool) {
	t.Helper()
	for range 100 {
		quiet := true
		for i, e := range ends {
			for e.gone < len(e.open) {
				e.leave()
			}
			e.close()
			for len(ends[1-i].wire) > 0 {
				e.arrive(t, ends[1-i])
				quiet = false
			}
			if read {
				e.read(e.held)
			}
			if e.MustUpdate() && e.May(Update) {
				e.send(false)
				quiet = false
			}
		}
		if quiet {
			for _, e := range ends {
				if e.MustUpdate() {
					t.Fatalf("owes an update that it may not send: %+v", e)
				}
			}
			return
		}
	}
	t.Fatal("two idle ends go on updating each other")
}
