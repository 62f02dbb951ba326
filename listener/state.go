package listener

import "fmt"

// state is what a Listener does. The package comment draws the states.
type state uint8

const (
	_           state = iota
	waiting           // the accepting goroutine waits for an Accept, or admits a connection
	accepting         // it is in Accept of the underlying listener
	interrupted       // the same, and a deadline in the past ends that Accept
	returned          // that Accept has ended; its deadline remains to be removed
	cut               // the underlying listener was closed by somebody else
	closing           // Close was called, and the accepting goroutine has not ended
	draining          // it has; Accept returns the connections that were accepted
	ended             // Accept returns no more connections
	states
)

// event is what changes the state.
type event uint8

const (
	enter     event = iota // the accepting goroutine calls Accept of the underlying listener
	interrupt              // no Accept waits any more
	leave                  // Accept of the underlying listener has returned
	exit                   // the accepting goroutine ends
	shut                   // the program calls Close
	finish                 // the connections that were accepted have been returned, or their time is over
	events
)

// transitions has the state after each event. An event that is not listed for a state cannot happen there.
var transitions = [states][events]state{
	waiting:     {enter: accepting, exit: cut, shut: closing},
	accepting:   {interrupt: interrupted, leave: waiting, shut: closing},
	interrupted: {leave: returned, shut: closing},
	returned:    {enter: accepting, exit: cut, shut: closing},
	cut:         {shut: draining},
	closing:     {leave: closing, exit: draining, shut: closing},
	draining:    {shut: draining, finish: ended},
	ended:       {shut: ended},
}

// after returns the state after an event, and panics if that cannot happen in s.
func (s state) after(e event) state {
	next := transitions[s][e]
	if next == 0 {
		panic(fmt.Sprintf("listener: %v while %v", e, s))
	}
	return next
}

// closed reports whether Close was called.
func (s state) closed() bool { return s == closing || s == draining || s == ended }

// inAccept reports whether the accepting goroutine is in Accept of the underlying listener. While the listener is
// closing, that does not matter.
func (s state) inAccept() bool { return s == accepting || s == interrupted }

// stopped reports whether the accepting goroutine has ended.
func (s state) stopped() bool { return s == cut || s == draining || s == ended }

func (s state) String() string {
	return [states]string{"invalid", "waiting", "accepting", "interrupted", "returned", "cut", "closing", "draining", "ended"}[s]
}

func (e event) String() string {
	return [events]string{"enter", "interrupt", "leave", "exit", "shut", "finish"}[e]
}
