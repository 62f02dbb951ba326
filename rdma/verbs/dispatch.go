package verbs

import "sync"

const (
	// mostDispatching bounds the goroutines that handle events. Each one that is in the kernel
	// occupies a thread.
	mostDispatching = 8
	// mostOffered is how many queues may wait before offer refuses.
	mostOffered = 256
)

// dispatcher handles events on at most mostDispatching goroutines, so that the
// goroutines that read events do nothing slow. It starts them when there are events,
// and they end when there are none. The zero value is ready to use.
//
// mu guards the fields of the dispatcher and of its queues. It is not held while an
// event is handled.
type dispatcher struct {
	mu      sync.Mutex
	ready   []*eventQueue // queues with events of which none is being handled
	running int
	workers sync.WaitGroup
}

// eventQueue holds the events of one source. They are handled one at a time, in the
// order in which they were posted; events of different queues may be handled at the
// same time. The zero value is empty.
type eventQueue struct {
	events []func()
	active bool // it is in ready, or one of its events is being handled
}

// post adds an event to q. It does not block.
func (d *dispatcher) post(q *eventQueue, handle func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addLocked(q, handle)
}

// offer is post for events that strangers can cause at any rate. If mostOffered queues wait already,
// it returns false and adds nothing.
func (d *dispatcher) offer(q *eventQueue, handle func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.ready) >= mostOffered {
		return false
	}
	d.addLocked(q, handle)
	return true
}

// addLocked adds an event.
func (d *dispatcher) addLocked(q *eventQueue, handle func()) {
	q.events = append(q.events, handle)
	if q.active {
		return
	}
	q.active = true
	d.ready = append(d.ready, q)
	if d.running < mostDispatching {
		d.running++
		d.workers.Go(d.work)
	}
}

// work handles events until there are none. A queue goes to the end after each event.
func (d *dispatcher) work() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.ready) > 0 {
		q := d.ready[0]
		d.ready[0] = nil
		d.ready = d.ready[1:]
		handle := q.events[0]
		q.events[0] = nil
		q.events = q.events[1:]
		d.mu.Unlock()
		handle()
		d.mu.Lock()
		if len(q.events) > 0 {
			d.ready = append(d.ready, q)
		} else {
			q.events, q.active = nil, false
		}
	}
	d.running--
}

// wait waits until every event has been handled. Only events may post more meanwhile.
func (d *dispatcher) wait() { d.workers.Wait() }
