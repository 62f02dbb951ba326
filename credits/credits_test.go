package credits

import (
	"errors"
	"strings"
	"testing"
)

// send stamps n messages and commits them.
func send(a *Account, n int) {
	for i := range n {
		a.Next(uint32(i))
	}
	a.Sent(n)
}

// receive receives n messages that grant bufs credits after our last message.
func receive(t *testing.T, a *Account, n int, bufs uint16) {
	t.Helper()
	for range n {
		if err := a.Received(a.received+1, a.sent, bufs); err != nil {
			t.Fatal(err)
		}
	}
}

// at returns the account of a connection on which both ends have sent as many
// messages as make mseq the last number.
func at(mseq uint32, peerBufs, posted uint16) Account {
	a := New(peerBufs, posted)
	a.sent, a.acked, a.received = mseq, mseq, mseq
	a.told.ack, a.stamped.ack, a.limit = mseq, mseq, mseq+uint32(posted)
	return a
}

// TestUseOfCredits is §10.5's list, and ours for a peer with many buffers. With
// gain there is credit to give.
func TestUseOfCredits(t *testing.T) {
	for _, v := range []struct {
		bufs                  uint16
		credit                int
		gain                  bool
		update, bare, payload bool
		room                  int
	}{
		{4, 0, false, false, false, false, 0}, // no credits: nothing at all
		{4, 0, true, false, false, false, 0},
		{4, 1, false, false, false, false, 0}, // one: what gives credit, without payload
		{4, 1, true, true, true, false, 0},
		{4, 2, false, false, true, false, 0}, // two: what has no payload
		{4, 2, true, true, true, false, 0},
		{4, 3, false, false, true, true, 1}, // three: anything
		{4, 3, true, true, true, true, 1},
		{5, 0, true, false, false, false, 0},
		{5, 1, false, false, false, false, 0},
		{5, 1, true, true, true, false, 0},
		{5, 2, false, false, true, false, 0},
		{5, 3, false, false, true, false, 0}, // ours: three leave payload out
		{5, 3, true, true, true, false, 0},
		{5, 4, false, false, true, true, 1},
		{20, 10, true, true, true, true, 7},
	} {
		a := New(v.bufs, 5)
		send(&a, int(v.bufs)-v.credit)
		if v.gain {
			a.Post(1)
		}
		if got := a.Credit(); got != v.credit {
			t.Fatalf("credit %d, want %d", got, v.credit)
		}
		if u, b, p, r := a.May(Update), a.May(Bare), a.May(Payload), a.Room(); u != v.update || b != v.bare || p != v.payload || r != v.room {
			t.Errorf("credit %d, gain %v: update %v, bare %v, payload %v, room %d; want %+v", v.credit, v.gain, u, b, p, r, v)
		}
	}
}

// TestMustUpdate is §10.5's last rule, and ours for a peer with two or three credits.
func TestMustUpdate(t *testing.T) {
	for _, v := range []struct {
		peerCredit, gain int
		must             bool
	}{
		{0, 0, false}, {0, 1, true}, {0, 5, true},
		{1, 0, false}, {1, 1, true}, {1, 5, true},
		{2, 0, false}, {2, 1, false}, {2, 2, true}, {2, 5, true},
		{3, 0, false}, {3, 1, false}, {3, 2, true}, {3, 5, true},
		{4, 0, false}, {4, 5, false},
	} {
		a := New(20, 20)
		receive(t, &a, 20-v.peerCredit, 20)
		a.Post(v.gain)
		if got := a.PeerCredit(); got != v.peerCredit {
			t.Fatalf("peer's credit %d, want %d", got, v.peerCredit)
		}
		if got := a.Gain(); got != v.gain {
			t.Fatalf("gain %d, want %d", got, v.gain)
		}
		if got := a.MustUpdate(); got != v.must {
			t.Errorf("peer's credit %d, gain %d: MustUpdate %v, want %v", v.peerCredit, v.gain, got, v.must)
		}
	}
}

func TestFirstMessage(t *testing.T) {
	a := New(3, 8)
	if a.Credit() != 3 || a.Room() != 1 || a.PeerCredit() != 8 || a.Gain() != 0 || a.MustUpdate() {
		t.Errorf("fresh account %+v", a)
	}
	if mseq, ack, bufs := a.Next(0); mseq != 1 || ack != 0 || bufs != 8 {
		t.Errorf("first message has MSeq %d, MSeqAck %d, Bufs %d", mseq, ack, bufs)
	}
	a.Sent(1)
	if a.Credit() != 2 || a.May(Payload) {
		t.Errorf("credit %d after the first of three", a.Credit())
	}
	// The peer's first one, sent before it saw ours, says nothing new.
	if err := a.Received(1, 0, 3); err != nil || a.Credit() != 2 {
		t.Errorf("credit %d, %v after a first message that acknowledges nothing", a.Credit(), err)
	}
	if err := a.Received(2, 1, 3); err != nil || a.Credit() != 3 {
		t.Errorf("credit %d, %v when the first is acknowledged", a.Credit(), err)
	}
	if mseq, ack, bufs := a.Next(0); mseq != 2 || ack != 2 || bufs != 6 {
		t.Errorf("second message has MSeq %d, MSeqAck %d, Bufs %d", mseq, ack, bufs)
	}
}

func TestWrapAround(t *testing.T) {
	a := at(1<<32-2, 8, 8)
	for i, want := range []uint32{1<<32 - 1, 0, 1} {
		if mseq, ack, bufs := a.Next(uint32(i)); mseq != want || ack != 1<<32-2 || bufs != 8 {
			t.Errorf("message %d has MSeq %d, MSeqAck %d, Bufs %d", i, mseq, ack, bufs)
		}
	}
	a.Sent(3)
	if a.Credit() != 5 {
		t.Errorf("credit %d, want 5", a.Credit())
	}
	for i, mseq := range []uint32{1<<32 - 1, 0, 1} {
		if err := a.Received(mseq, uint32(i)-1, 8); err != nil { // acknowledges 2³²−1, 0, 1
			t.Fatal(err)
		}
	}
	if a.Credit() != 8 || a.PeerCredit() != 5 || a.Gain() != 0 {
		t.Errorf("credit %d, peer's %d, gain %d", a.Credit(), a.PeerCredit(), a.Gain())
	}
	a.Post(3)
	send(&a, 1)
	if a.PeerCredit() != 8 || a.Credit() != 7 {
		t.Errorf("credit %d, peer's %d", a.Credit(), a.PeerCredit())
	}
}

func TestCrossingUpdates(t *testing.T) {
	a, b := New(8, 8), New(8, 8)
	for _, e := range []*Account{&a, &b} {
		send(e, 6)
	}
	for i := range uint32(6) { // stamped before anything came
		if err := errors.Join(a.Received(i+1, 0, 8), b.Received(i+1, 0, 8)); err != nil {
			t.Fatal(err)
		}
	}
	a.Post(6)
	b.Post(6)
	if !a.MustUpdate() || !b.MustUpdate() || a.Credit() != 2 || b.Credit() != 2 {
		t.Fatalf("after six messages each way:\n%+v\n%+v", a, b)
	}
	as, aa, ab := a.Next(0)
	bs, ba, bb := b.Next(0)
	a.Sent(1)
	b.Sent(1)
	if err := errors.Join(a.Received(bs, ba, bb), b.Received(as, aa, ab)); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*Account{&a, &b} {
		// The one that crossed is not acknowledged yet.
		if e.Credit() != 7 || e.PeerCredit() != 7 || e.MustUpdate() {
			t.Errorf("credit %d, peer's %d, must update %v", e.Credit(), e.PeerCredit(), e.MustUpdate())
		}
	}
}

func TestReceivedRejects(t *testing.T) {
	for _, v := range []struct {
		name            string
		mseq, ack       uint32
		field, mentions string
	}{
		{"the same again", 2, 3, "MSeq", "expected 3"},
		{"one left out", 4, 3, "MSeq", "expected 3"},
		{"far back", 1<<32 - 1, 3, "MSeq", "expected 3"},
		{"of a message not sent", 3, 6, "MSeqAck", "beyond the last message sent, 5"},
		{"half the circle away", 3, 5 + 1<<31, "MSeqAck", "less than the previous"},
		{"back", 3, 2, "MSeqAck", "less than the previous 3"},
		{"back before the first", 3, 1<<32 - 1, "MSeqAck", "less than the previous 3"},
	} {
		t.Run(v.name, func(t *testing.T) {
			a := New(8, 8)
			send(&a, 3)
			receive(t, &a, 2, 8) // acknowledges 3
			send(&a, 2)
			before := a
			err := a.Received(v.mseq, v.ack, 8)
			var e *Error
			if !errors.As(err, &e) || e.Field != v.field || !strings.Contains(e.What, v.mentions) {
				t.Errorf("error %v, want one about %s: %s", err, v.field, v.mentions)
			}
			if a != before {
				t.Error("the account has changed")
			}
		})
	}
}

func TestReceivedRejectsOverrun(t *testing.T) {
	a := New(8, 3)
	receive(t, &a, 3, 8)
	a.Post(3) // posted again, but the peer has not been told
	if err := a.Received(4, 0, 8); err == nil || !strings.Contains(err.Error(), "beyond the credit limit 3") {
		t.Errorf("error %v for a message without credit", err)
	}
	send(&a, 1)
	if err := a.Received(4, 0, 8); err != nil {
		t.Errorf("error %v for a message with credit", err)
	}
}

// TestPeerIsFasterThanSent: the peer acknowledges a message, and spends the
// credit that it gave, before Sent has told that it went.
func TestPeerIsFasterThanSent(t *testing.T) {
	a := New(8, 3)
	receive(t, &a, 3, 8)
	a.Post(2)
	if _, ack, bufs := a.Next(0); ack != 3 || bufs != 2 {
		t.Fatalf("stamped MSeqAck %d, Bufs %d", ack, bufs)
	}
	a.Next(1)
	if a.Credit() != 6 {
		t.Errorf("credit %d with two of eight stamped", a.Credit())
	}
	if err := a.Received(4, 1, 8); err != nil {
		t.Fatal(err)
	}
	if err := a.Received(5, 2, 8); err != nil {
		t.Fatal(err)
	}
	a.Post(1)
	if _, ack, bufs := a.Next(2); ack != 3 || bufs != 2 {
		t.Errorf("the batch changed to MSeqAck %d, Bufs %d", ack, bufs)
	}
	a.Sent(3)
	if a.Credit() != 7 || a.PeerCredit() != 0 || a.Gain() != 1 {
		t.Errorf("credit %d, peer's %d, gain %d", a.Credit(), a.PeerCredit(), a.Gain())
	}
}

func TestUnsentMessagesAreStampedAnew(t *testing.T) {
	a := New(8, 8)
	receive(t, &a, 6, 8)
	a.Post(6)
	a.Next(0)
	a.Next(1)
	a.Sent(0)
	if a.Credit() != 8 || a.PeerCredit() != 2 || a.Gain() != 6 {
		t.Errorf("none went: credit %d, peer's %d, gain %d", a.Credit(), a.PeerCredit(), a.Gain())
	}
	a.Next(0)
	a.Next(1)
	a.Sent(1)
	if a.Credit() != 7 || a.PeerCredit() != 8 || a.Gain() != 0 {
		t.Errorf("one went: credit %d, peer's %d, gain %d", a.Credit(), a.PeerCredit(), a.Gain())
	}
	if mseq, _, _ := a.Next(0); mseq != 2 {
		t.Errorf("the other one has MSeq %d now", mseq)
	}
}

// TestBatchGivesOnce: only the first message of a batch gives credit, so only
// it may take the last one.
func TestBatchGivesOnce(t *testing.T) {
	a := New(20, 5)
	send(&a, 18)
	a.Post(1)
	if !a.May(Update) {
		t.Fatal("no update at two credits")
	}
	a.Next(0)
	if a.Credit() != 1 || a.May(Update) || a.May(Bare) {
		t.Errorf("credit %d: a second message of the batch may take it", a.Credit())
	}
}

// TestPeerHoldsBackItsAcknowledgement as §9.5.4 has it do: it has used up all
// buffers, and acknowledges half.
func TestPeerHoldsBackItsAcknowledgement(t *testing.T) {
	a := New(8, 8)
	send(&a, 8)
	if err := a.Received(1, 4, 0); err != nil || a.Credit() != 0 || a.Room() != 0 {
		t.Errorf("credit %d, room %d, %v", a.Credit(), a.Room(), err)
	}
	if err := a.Received(2, 8, 3); err != nil || a.Credit() != 3 {
		t.Errorf("credit %d, %v afterwards", a.Credit(), err)
	}
}

func TestMisusePanics(t *testing.T) {
	for name, misuse := range map[string]func(*Account){
		"a buffer withdrawn":       func(a *Account) { a.Post(-1) },
		"more buffers than 65535":  func(a *Account) { a.Post(65535) },
		"more sent than stamped":   func(a *Account) { a.Next(0); a.Sent(2) },
		"less than nothing sent":   func(a *Account) { a.Next(0); a.Sent(-1) },
		"sent without being asked": func(a *Account) { a.Sent(1) },
	} {
		t.Run(name, func(t *testing.T) {
			a := New(8, 8)
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse(&a)
		})
	}
}

// roundTrip is what a message and its answer cost the account.
func roundTrip(a *Account) error {
	if a.May(Payload) {
		mseq, _, _ := a.Next(0)
		a.Sent(1)
		if err := a.Received(mseq, mseq, 64); err != nil {
			return err
		}
		a.Post(1)
	}
	a.MustUpdate()
	return nil
}

func TestAllocsNone(t *testing.T) {
	a := New(64, 64)
	if n := testing.AllocsPerRun(1000, func() {
		if err := roundTrip(&a); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	a := New(64, 64)
	b.ReportAllocs()
	for b.Loop() {
		if err := roundTrip(&a); err != nil {
			b.Fatal(err)
		}
	}
}

// TestHold is §9.5.4: the peer's credit reaches as far as without it, and nothing
// from the message on is acknowledged.
func TestHold(t *testing.T) {
	for _, v := range []struct {
		name   string
		before int // messages received and acknowledged
		behind int // messages received after the one that is held back
		post   int // of their buffers and its own, posted again
		ack    uint32
		bufs   uint16
	}{
		{"the first message", 0, 0, 0, 0, 8},
		{"its buffer posted again", 0, 0, 1, 0, 9},
		{"the fourth", 3, 0, 0, 3, 8},
		{"others after it", 3, 2, 0, 3, 8},
		{"others after it, posted again", 3, 2, 3, 3, 11},
	} {
		t.Run(v.name, func(t *testing.T) {
			a, free := New(8, 8), New(8, 8)
			for _, e := range []*Account{&a, &free} {
				receive(t, e, v.before, 8)
				e.Post(v.before)
				send(e, 1)
			}
			mseq := uint32(v.before) + 1
			for _, e := range []*Account{&a, &free} {
				if err := e.Received(mseq, 1, 8); err != nil {
					t.Fatal(err)
				}
			}
			a.Hold(mseq)
			for _, e := range []*Account{&a, &free} {
				for i := range v.behind {
					if err := e.Received(mseq+1+uint32(i), 1, 8); err != nil {
						t.Fatal(err)
					}
				}
				e.Post(v.post)
			}
			if got, want := a.Gain(), free.Gain(); got != want {
				t.Errorf("gain %d, want %d", got, want)
			}
			if got, want := a.MustUpdate(), free.MustUpdate(); got != want {
				t.Errorf("must update %v, want %v", got, want)
			}
			_, ack, bufs := a.Next(0)
			if ack != v.ack || bufs != v.bufs {
				t.Errorf("stamped MSeqAck %d, Bufs %d, want %d, %d", ack, bufs, v.ack, v.bufs)
			}
			_, freeAck, freeBufs := free.Next(0)
			if ack+uint32(bufs) != freeAck+uint32(freeBufs) {
				t.Errorf("the peer's credit ends at %d, want %d", ack+uint32(bufs), freeAck+uint32(freeBufs))
			}
			a.Sent(1)
			free.Sent(1)
			if got, want := a.PeerCredit(), free.PeerCredit(); got != want {
				t.Errorf("the peer's credit is %d, want %d", got, want)
			}
			a.Release()
			if _, ack, bufs = a.Next(0); ack != freeAck || bufs != freeBufs {
				t.Errorf("after Release MSeqAck %d, Bufs %d, want %d, %d", ack, bufs, freeAck, freeBufs)
			}
		})
	}
}

// TestHoldDoesNotMoveBack: a batch that was stamped before keeps what it has told.
func TestHoldDoesNotMoveBack(t *testing.T) {
	a, b := New(8, 8), New(8, 8)
	send(&b, 2)
	receive(t, &a, 2, 8)
	_, ack, _ := a.Next(0)
	if err := a.Received(3, 0, 8); err != nil {
		t.Fatal(err)
	}
	a.Hold(3)
	_, again, _ := a.Next(1)
	a.Sent(2)
	_, later, _ := a.Next(0)
	if ack != 2 || again != 2 || later != 2 {
		t.Errorf("acknowledged %d, %d, then %d, want 2", ack, again, later)
	}
}

// TestHoldAtTheWrapAround, and with more buffers than Bufs can tell.
func TestHoldAtTheWrapAround(t *testing.T) {
	a := at(1<<32-2, 8, 1<<16-1)
	for mseq := uint32(1<<32 - 1); mseq != 3; mseq++ {
		if err := a.Received(mseq, 1<<32-2, 8); err != nil {
			t.Fatal(err)
		}
		if mseq == 1<<32-1 {
			a.Hold(mseq)
		}
		a.Post(1)
	}
	if _, ack, bufs := a.Next(0); ack != 1<<32-2 || bufs != 1<<16-1 {
		t.Errorf("stamped MSeqAck %d, Bufs %d", ack, bufs)
	}
	a.Sent(1)
	a.Release()
	if _, ack, bufs := a.Next(0); ack != 2 || bufs != 1<<16-1 {
		t.Errorf("after Release MSeqAck %d, Bufs %d", ack, bufs)
	}
}
