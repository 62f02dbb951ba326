// Package trigger decides when a connection moves to shared memory: when what it has lost by not
// moving is what a move costs. It has no I/O and no clock of its own.
package trigger

import (
	"math"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/timing"
)

const (
	// Pays is the score at which a move has paid for itself, as far as is known: some 16 exchanges, or
	// 1 MB of a stream.
	Pays = 16
	// bytesPerPoint is how many bytes of payload count as much as an exchange.
	bytesPerPoint = 64 << 10

	least, most = 2, 4096 // scores at which connections of an address move

	pause    = time.Second // after which a connection begins to count again
	mostVain = 3           // meetings in vain, after which a connection stays on TCP
)

// Score returns the score of a connection from how often it has turned from reading to writing, and how many bytes
// it has moved in both directions.
func Score(turns, bytes uint64) uint64 { return turns + bytes/bytesPerPoint }

// Action is what a connection does next.
type Action int

// The actions.
const (
	Nothing Action = iota
	Invite         // a dialler lets the acceptor find it
	Wait           // a meeting goes on, or is given up after timing.MeetTime
	Seek           // an acceptor looks for the dialler
	Abandon        // the meeting has lasted for long enough
)

// Trigger is the state of one connection. The caller serialises its methods.
type Trigger struct {
	dialler bool
	never   bool
	meeting bool
	atOnce  bool // the first step comes before the connection has a score
	vain    uint8
	level   uint8
	at      uint32        // the score at which connections of this address move
	base    uint64        // the score after the last pause,
	listens uint64        // from which the dialler listens
	begun   uint64        // the score when the meeting began
	since   time.Duration // when the meeting began
	last    time.Duration // when Next was last asked
}

// Start begins with a connection whose address has learned that it should move at the given score. It returns the score
// at which Next has something to say. If that is the least, a dialler invites with its first exchange, and an acceptor
// seeks after that: each exchange over TCP costs as much as half of a move.
func (t *Trigger) Start(dialler bool, at int, now time.Duration) (next uint64) {
	*t = Trigger{dialler: dialler, at: uint32(at)}
	next = t.Restart(0, now)
	if t.atOnce = at <= least; t.atOnce {
		next = 0
		if !dialler {
			next = 1
		}
	}
	return next
}

// threshold is the score of the next attempt after a pause: the acceptor tries once for each factor √2, one point
// later than the dialler, whose count is one ahead.
func (t *Trigger) threshold() uint64 {
	n := math.Ceil(float64(t.at) / 2 * math.Pow(2, float64(t.level)/2))
	n = max(n, float64(t.level)+1)
	if !t.dialler {
		n++
	}
	return t.base + uint64(min(n, math.MaxInt32))
}

// Next says what to do at a score, and the score at which to ask again.
func (t *Trigger) Next(score uint64, now time.Duration) (do Action, next uint64) {
	switch {
	case t.never:
		return Nothing, math.MaxUint64
	case t.meeting:
		if t.dialler && score >= t.begun+max(uint64(t.at), 8) && now-t.since >= timing.Listen || now-t.since >= timing.MeetTime {
			return Abandon, score + 1
		}
		return Wait, score + t.patience(score)
	case t.atOnce:
		t.atOnce = false
		if t.last = now; t.dialler {
			t.listens = 4
			return Invite, t.threshold()
		}
		return Seek, t.threshold()
	case now-t.last > pause*time.Duration(max(1, t.at/Pays)): // from one threshold to the next
		return Nothing, t.Restart(score, now)
	}
	t.last = now
	for t.threshold() <= score {
		t.level++
	}
	next = t.threshold()
	switch {
	case !t.dialler:
		return Seek, next
	case score-t.base >= t.listens:
		t.listens = 4 * (score - t.base)
		return Invite, next
	}
	return Nothing, next
}

// patience is after how many points a meeting is looked at again: a dialler to whom nobody has come yet does not look
// each time.
func (t *Trigger) patience(score uint64) uint64 {
	if !t.dialler {
		return 1
	}
	return min(4, 1+(score-t.begun)/2)
}

// Begin tells that a meeting has begun.
func (t *Trigger) Begin(score uint64, now time.Duration) {
	t.meeting, t.since, t.begun = true, now, score
}

// End tells that the meeting has ended, and whether it has brought the ends together.
func (t *Trigger) End(together bool) {
	t.meeting = false
	if together {
		t.vain = 0
	} else {
		if t.vain++; t.vain >= mostVain {
			t.never = true
		}
	}
}

// Cancel tells that the meeting has ended, if there is one, and that this proves nothing.
func (t *Trigger) Cancel() { t.meeting = false }

// Never keeps the connection on TCP.
func (t *Trigger) Never() { t.never = true }

// Dearer tells that the connection has to come home for want of memory. It then moves at twice the score.
func (t *Trigger) Dearer() { t.at = min(most, 2*t.at) }

// Restart counts from the given score on: after a pause, or when the connection has come home.
func (t *Trigger) Restart(score uint64, now time.Duration) (next uint64) {
	t.base, t.level, t.listens, t.last = score, 0, uint64(t.at), now
	if t.never {
		return math.MaxUint64
	}
	return t.threshold()
}

// Memory is what addresses have learned. The zero value is ready to use, and safe for concurrent use.
type Memory[K comparable] struct {
	mu    sync.Mutex
	known map[K]known
}

// known is what an address has learned: the score at which connections should move, and how many of them have met
// nobody since one last did.
type known struct {
	at   uint16
	vain uint8
}

// Lesson is what a connection shows about its address.
type Lesson int

// The lessons.
const (
	Short Lesson = iota // it has ended before a move would have paid
	Long                // it has lived for so long that it should have moved at once
	Met                 // the ends have met
	Vain                // nobody has come to a meeting
)

const (
	mostKnown   = 4096 // addresses; one more takes the place of another
	mostDoubled = 12   // times, if nobody comes: 2 becomes more than most
)

// At returns the score at which connections of the address move.
func (m *Memory[K]) At(address K) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.known[address]
	if !ok {
		return Pays
	}
	return min(most, int(k.at)<<k.vain)
}

// Learn takes a lesson.
func (m *Memory[K]) Learn(address K, lesson Lesson) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.known[address]
	if !ok {
		if lesson == Met {
			return
		}
		k.at = Pays
		if m.known == nil {
			m.known = make(map[K]known)
		}
		if len(m.known) >= mostKnown {
			for other := range m.known {
				delete(m.known, other)
				break
			}
		}
	}
	switch lesson {
	case Short:
		k.at = min(most, max(k.at, Pays/2)*2)
	case Long:
		k.at = max(least, min(k.at, 2*Pays)/2)
	case Met:
		k.vain = 0
	case Vain:
		k.vain = min(k.vain+1, mostDoubled)
	}
	m.known[address] = k
}
