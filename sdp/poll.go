package sdp

import (
	"sync"

	"github.com/gosdp/gosdp/rdma"
)

// await waits for news: as the poller if there is none, else from the poller.
// Called and returns with mu held.
func (c *conn) await() {
	if !c.polling {
		c.pollOnce()
		return
	}
	c.sit()
}

// sit waits for what another goroutine of this connection will tell, and does
// not poll: who polls is not told. Called and returns with mu held.
func (c *conn) sit() {
	if c.waiters == 0 {
		c.news = newsPool.Get().(*sync.Cond)
		c.news.L = &c.mu
	}
	c.waiters++
	c.news.Wait()
	if c.waiters--; c.waiters == 0 {
		c.news.L = nil
		newsPool.Put(c.news)
		c.news = nil
	}
}

// newsPool has conditions that nobody waits for: few connections have one at a
// time, and it is 56 bytes.
var newsPool = sync.Pool{New: func() any { return new(sync.Cond) }}

// claim is await for a call that is slowed down by news from another goroutine:
// the attendant makes way for it.
func (c *conn) claim() {
	if !c.polling || !c.attending {
		c.await()
		return
	}
	c.claims++
	if c.parked {
		c.qp.Wake()
	}
	c.await()
	c.claims--
}

// pollOnce is the poller until there are completions, it was woken, or nothing
// more will come. Called and returns with mu held; releases it in between.
func (c *conn) pollOnce() {
	c.polling, c.parked = true, true
	c.mu.Unlock()
	wcs := c.few[:]
	if c.many != nil {
		wcs = c.many[:]
	}
	n, err := c.qp.Wait(wcs)
	c.mu.Lock()
	c.parked = false
	c.handle(wcs[:n], err)
	if c.many == nil && n == len(c.few) { // when one comes at a time, as answers do, no more is to be had
		c.many = completionsPool.Get().(*completions)
		c.mu.Unlock()
		n, err = c.qp.Poll(c.many[:])
		c.mu.Lock()
		c.handle(c.many[:n], err)
	}
	if c.many != nil && n <= len(c.few) {
		completionsPool.Put(c.many)
		c.many = nil
	}
	if c.due.Load() {
		c.mu.Unlock()
		c.control()
		c.mu.Lock()
	}
	c.polling = false
	c.tell()
	c.watchLocked()
}

// completions are what a poller takes of a connection on which much comes. They are
// in a pool: who waits on an idle connection has but few.
type completions [8]rdma.Completion

var completionsPool = sync.Pool{New: func() any { return new(completions) }}

// drainPolled is pollOnce without waiting: it takes what is there, or much of it.
func (c *conn) drainPolled() {
	c.polling = true
	wcs := completionsPool.Get().(*completions)
	defer completionsPool.Put(wcs)
	for rounds := 0; ; rounds++ {
		if rounds == patientRounds { // a peer could go on for ever
			break
		}
		c.mu.Unlock()
		n, err := c.qp.Poll(wcs[:])
		c.mu.Lock()
		c.handle(wcs[:n], err)
		if n == 0 || err != nil {
			break
		}
	}
	c.polling = false
	c.tell()
}

// patientRounds is how often what is there is taken in without a clock.
const patientRounds = 8

// handle takes in what the device has delivered.
func (c *conn) handle(wcs []rdma.Completion, err error) {
	c.polled++
	if len(wcs) > 0 {
		c.activity++
	}
	for i := range wcs {
		c.behind = int32(len(wcs) - i - 1)
		c.take(&wcs[i])
		wcs[i] = rdma.Completion{}
	}
	if err != nil && c.recvErr == nil {
		c.recvEnded(err)
	}
	c.relieve()
}

// tell wakes those who wait for news.
func (c *conn) tell() {
	if c.waiters > 0 {
		c.news.Broadcast()
	}
}

// wakeAll makes every waiting call look at the state again: a deadline has
// passed, or the connection is closed. Called with mu held.
func (c *conn) wakeAll() {
	c.tell()
	if c.parked {
		c.qp.Wake()
	}
	if c.inRoom {
		c.qp.WakeRoom()
	}
}

// attend starts the attendant, if nobody polls. Called with mu held.
func (c *conn) attend() {
	if c.polling || c.attending || c.closed && !c.draining || c.recvErr != nil {
		return
	}
	c.attending = true
	c.workers.Go(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for c.claims == 0 && (!c.closed || c.draining) && c.recvErr == nil && !c.polling {
			c.pollOnce()
		}
		c.attending = false
		c.tell()
	})
}
