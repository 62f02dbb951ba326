package engine

import "fmt"

// The states of a Conn are enums whose transitions are methods. A transition from a state that
// does not permit it panics, because the connection would otherwise have two leaders, or end its
// channel twice. All of them are guarded by Conn.mu.

// move makes a transition that exactly one state permits.
func move[S interface {
	~uint8
	fmt.Stringer
}](s *S, transition string, from, to S) {
	if *s != from {
		refuse(transition, *s)
	}
	*s = to
}

// refuse panics because state does not permit a transition.
func refuse(transition string, state fmt.Stringer) {
	panic(fmt.Sprintf("sdp: transition %s in state %v", transition, state))
}

// phase says which directions the program has closed and, after Close, how the channel is
// ended. docs/closing.md draws it. The methods below depend on the order of the values.
type phase uint8

const (
	open        phase = iota
	readClosed        // CloseRead was called
	writeClosed       // CloseWrite was called
	bothClosed        // CloseRead and CloseWrite were called
	stepping          // Close was called, and one goroutine takes steps to end the channel
	draining          // that goroutine waits for the device; the background poller may run
	waiting           // no goroutine takes steps; the idle monitor visits the connection
	concluded         // one goroutine ends the channel, or has ended it

	phases = iota
)

func (p phase) String() string {
	return [phases]string{"open", "readClosed", "writeClosed", "bothClosed", "stepping", "draining", "waiting", "concluded"}[p]
}

// readClosed reports whether CloseRead or Close was called.
func (p phase) readClosed() bool { return p == readClosed || p >= bothClosed }

// writeClosed reports whether CloseWrite or Close was called.
func (p phase) writeClosed() bool { return p >= writeClosed }

// bothClosed reports whether the program neither reads nor writes any more.
func (p phase) bothClosed() bool { return p >= bothClosed }

// closed reports whether Close was called.
func (p phase) closed() bool { return p >= stepping }

// closeRead is the transition of CloseRead.
func (p *phase) closeRead() {
	switch *p {
	case open:
		*p = readClosed
	case writeClosed:
		*p = bothClosed
	case readClosed, bothClosed:
	default:
		refuse("closeRead", *p)
	}
}

// closeWrite is the transition of CloseWrite.
func (p *phase) closeWrite() {
	switch *p {
	case open:
		*p = writeClosed
	case readClosed:
		*p = bothClosed
	case writeClosed, bothClosed:
	default:
		refuse("closeWrite", *p)
	}
}

// close is the transition of Close, whose goroutine takes the first steps.
func (p *phase) close() {
	if p.closed() {
		refuse("close", *p)
	}
	*p = stepping
}

// drain begins to wait for the device.
func (p *phase) drain() { move(p, "drain", stepping, draining) }

// drained ends that.
func (p *phase) drained() { move(p, "drained", draining, stepping) }

// wait leaves further steps to the idle monitor's visits.
func (p *phase) wait() { move(p, "wait", stepping, waiting) }

// resume makes the caller the goroutine that takes steps.
func (p *phase) resume() { move(p, "resume", waiting, stepping) }

// conclude lets the goroutine that takes steps end the channel.
func (p *phase) conclude() { move(p, "conclude", stepping, concluded) }

// health says whether a connection still obeys the messages that arrive.
type health uint8

const (
	healthy  health = iota
	failed          // an abort, or a violation that the device reports, has ended the connection
	violated        // so has a violation of SDP by the peer

	healths = iota
)

func (h health) String() string { return [healths]string{"healthy", "failed", "violated"}[h] }

// fail ends the connection, which may have failed before.
func (h *health) fail() {
	if *h == healthy {
		*h = failed
	}
}

// violate ends the connection because the peer has broken a rule of SDP.
func (h *health) violate() { move(h, "violate", healthy, violated) }

// leader says what the goroutine that leads is doing; see poller.
type leader uint8

const (
	nobody  leader = iota // no goroutine leads
	polling               // it receives without waiting, or handles what it has received
	parked                // it is in QueuePair.Wait, or about to be; Wake ends that

	leaders = iota
)

func (l leader) String() string { return [leaders]string{"nobody", "polling", "parked"}[l] }

// poll makes the caller the leader.
func (l *leader) poll() { move(l, "poll", nobody, polling) }

// park makes the caller the leader, which waits.
func (l *leader) park() { move(l, "park", nobody, parked) }

// unpark ends the leader's wait.
func (l *leader) unpark() { move(l, "unpark", parked, polling) }

// resign ends the caller's lead.
func (l *leader) resign() { move(l, "resign", polling, nobody) }

// background is the state of the background poller; see poller.
type background uint8

const (
	absent   background = iota // it does not run
	running                    // it leads, or will lead when it has mu
	retiring                   // it ends when it next looks

	backgrounds = iota
)

func (b background) String() string {
	return [backgrounds]string{"absent", "running", "retiring"}[b]
}

// start begins the background poller.
func (b *background) start() { move(b, "start", absent, running) }

// retire has the background poller end.
func (b *background) retire() { move(b, "retire", running, retiring) }

// keep withdraws a retire, if there was one.
func (b *background) keep() {
	if *b == retiring {
		*b = running
	}
}

// end notes that the background poller ends.
func (b *background) end() {
	if *b == absent {
		refuse("end", *b)
	}
	*b = absent
}
