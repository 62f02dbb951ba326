package handshake

import "fmt"

// State is how far a server's half of a handshake has advanced. The package comment draws the states.
type State uint8

const (
	_        State = iota
	Accepted       // the client may be plain TCP, or Run is to be called
	Securing       // the connection's own handshake runs, such as that of TLS
	Waiting        // for the client's first bytes, or to meet it
	Yielding       // the same, and GiveWay has ended the wait
	Reading        // the client speaks MPA, and its Request is read
	Agreeing       // the Request was read; the Reply is made and sent
	Deciding       // the Reply was sent; the client decides
	Leaving        // GiveWay has ended the handshake
	Ended
	states
)

// event is what changes the state.
type event uint8

const (
	eventAsk     event = iota // Plain finds that the client is to be asked
	eventPlain                // Plain finds that the client is plain TCP
	eventRun                  // Run is called
	eventSecured              // the connection has no handshake of its own, or that has ended
	eventKey                  // the client's first bytes are the key of an MPA Request
	eventRequest              // the Request was read
	eventReply                // the Reply was sent
	eventGiveWay              // GiveWay is called
	eventEnd                  // Run returns
	eventCount
)

// transitions has the state after each event. An event that is not listed for a state cannot happen there.
//
// A handshake that gives way while its client is silent continues if bytes have arrived meanwhile. Later ones end, but
// may take further steps before they notice.
var transitions = [states][eventCount]State{
	Accepted: {eventAsk: Accepted, eventPlain: Ended, eventRun: Securing},
	Securing: {eventSecured: Waiting, eventGiveWay: Leaving, eventEnd: Ended},
	Waiting:  {eventKey: Reading, eventGiveWay: Yielding, eventEnd: Ended},
	Yielding: {eventKey: Reading, eventGiveWay: Yielding, eventEnd: Ended},
	Reading:  {eventRequest: Agreeing, eventGiveWay: Leaving, eventEnd: Ended},
	Agreeing: {eventReply: Deciding, eventGiveWay: Leaving, eventEnd: Ended},
	Deciding: {eventGiveWay: Leaving, eventEnd: Ended},
	Leaving:  {eventSecured: Leaving, eventKey: Leaving, eventRequest: Leaving, eventReply: Leaving, eventGiveWay: Leaving, eventEnd: Ended},
	Ended:    {eventGiveWay: Ended},
}

// after returns the state after an event, and panics if that cannot happen in s: the caller has called the methods of
// Incoming in another order than it may.
func (s State) after(e event) State {
	next := transitions[s][e]
	if next == 0 {
		panic(fmt.Sprintf("handshake: %v while %v", e, s))
	}
	return next
}

// Heard reports whether the client has sent a Request.
func (s State) Heard() bool { return s == Agreeing || s == Deciding }

// Ending reports whether the handshake has ended, or is about to after GiveWay.
func (s State) Ending() bool { return s == Yielding || s == Leaving || s == Ended }

// String returns the state's name in lower case.
func (s State) String() string {
	return [states]string{"invalid", "accepted", "securing", "waiting", "yielding", "reading", "agreeing", "deciding", "leaving", "ended"}[s]
}

func (e event) String() string {
	return [eventCount]string{"ask", "plain", "run", "secured", "key", "request", "reply", "giveWay", "end"}[e]
}
