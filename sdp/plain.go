package sdp

import (
	"context"
	"sync"
	"time"
)

// speech is what is known of the peer at an address.
type speech uint8

const (
	unknown speech = iota
	speaksTCP
	speaksSDP
)

// maxPeers bounds how many addresses are remembered.
const maxPeers = 4096

// peerKey is an address as it was dialled.
type peerKey struct{ network, address string }

// peerTable remembers what the peers dialled lately speak: those of plain TCP,
// so that they are not asked again, and those of SDP, so that nobody waits for
// another's question to them. Its zero value is ready to use, and safe for
// concurrent use.
type peerTable struct {
	mu      sync.Mutex
	answers map[peerKey]answer
	asking  map[peerKey]chan struct{} // closed when the question has ended
}

// answer is what is known until some time.
type answer struct {
	speaks speech
	until  time.Time
}

// peers is shared by all Dialers, since the peers are.
var peers peerTable

// ask returns what is known of key. If it is unknown, the caller is to find out,
// and to call asked when it has, or has failed to; until then others who ask
// wait. It fails when ctx is done.
func (t *peerTable) ask(ctx context.Context, key peerKey) (speech, error) {
	for {
		t.mu.Lock()
		if a, ok := t.answers[key]; ok && time.Now().Before(a.until) {
			t.mu.Unlock()
			return a.speaks, nil
		}
		other, busy := t.asking[key]
		if !busy {
			if t.asking == nil {
				t.asking = make(map[peerKey]chan struct{})
			}
			t.asking[key] = make(chan struct{})
			t.mu.Unlock()
			return unknown, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return unknown, ctx.Err()
		}
	}
}

// known returns what is known of key, and waits for nobody.
func (t *peerTable) known(key peerKey) speech {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.answers[key]; ok && time.Now().Before(a.until) {
		return a.speaks
	}
	return unknown
}

// forget has the next call ask anew.
func (t *peerTable) forget(key peerKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.answers, key)
}

// asked ends the question that began when ask returned unknown.
func (t *peerTable) asked(key peerKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.asking[key])
	delete(t.asking, key)
}

// remember has ask return s for as long as ttl. In a full table the answer goes
// that would have gone first.
func (t *peerTable) remember(key peerKey, s speech, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.answers == nil {
		t.answers = make(map[peerKey]answer)
	}
	if _, there := t.answers[key]; !there && len(t.answers) >= maxPeers {
		t.dropFirst()
	}
	t.answers[key] = answer{s, time.Now().Add(ttl)}
}

func (t *peerTable) dropFirst() {
	var first peerKey
	var until time.Time
	for key, a := range t.answers {
		if until.IsZero() || a.until.Before(until) {
			first, until = key, a.until
		}
	}
	delete(t.answers, first)
}
