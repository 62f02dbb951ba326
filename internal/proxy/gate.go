package proxy

import (
	"context"
	"sync"
)

// A gate limits how many connections are inside. The zero value has no limit.
type gate struct {
	mu     sync.Mutex
	inside int
	limit  int           // 0: no bound
	left   chan struct{} // closed when there may be room; nil while no goroutine waits
}

// enter waits until there is room. It returns false if ctx is done first.
func (g *gate) enter(ctx context.Context) bool {
	for {
		g.mu.Lock()
		if g.limit == 0 || g.inside < g.limit {
			g.inside++
			g.mu.Unlock()
			return true
		}
		if g.left == nil {
			g.left = make(chan struct{})
		}
		left := g.left
		g.mu.Unlock()
		select {
		case <-left:
		case <-ctx.Done():
			return false
		}
	}
}

// leave makes room for another connection.
func (g *gate) leave() {
	g.mu.Lock()
	g.inside--
	g.wakeLocked()
	g.mu.Unlock()
}

// setLimit changes the limit. Connections that are inside stay.
func (g *gate) setLimit(limit int) {
	g.mu.Lock()
	g.limit = limit
	g.wakeLocked()
	g.mu.Unlock()
}

func (g *gate) wakeLocked() {
	if g.left != nil {
		close(g.left)
		g.left = nil
	}
}
