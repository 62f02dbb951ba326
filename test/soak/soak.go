package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/test/traffic"
)

// soak is the first process's work on one device.
type soak struct {
	device string
	conns  int
	seed   atomic.Uint64 // of the next session
	tally

	mu    sync.Mutex
	err   error // the first error of a session
	where string
}

// longest is the maximum number of bytes that a session moves in each direction.
const longest = 16 << 20

// run runs sessions for d, and checks that nothing leaks.
func (s *soak) run(d time.Duration) error {
	server, err := traffic.StartSecond(serveVariable + "=" + s.device)
	if err != nil {
		return err
	}
	defer server.Stop()
	s.sessions(server.First, time.Now().Add(d/10))
	before, theirs, err := s.waitIdle(server)
	if err != nil {
		return err
	}
	s.sessions(server.First, time.Now().Add(d-d/10))
	after, theirsAfter, err := s.waitIdle(server)
	if err != nil {
		return err
	}
	for until := time.Now().Add(10 * time.Second); ; { // the last goroutines may still be ending
		more, theirMore := after.Excess(before, traffic.Slack), theirsAfter.Held.Excess(theirs.Held, traffic.Slack)
		if more == "" && theirMore == "" {
			break
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s: leak: here %q, there %q", s.device, more, theirMore)
		}
		time.Sleep(100 * time.Millisecond)
		if after, theirsAfter, err = s.waitIdle(server); err != nil {
			return err
		}
	}
	fmt.Printf("%s: %v, %d sessions (%d reset), %.1f GB there, %.1f GB back, all of it right; %d+%d deadlines expired during calls\n",
		s.device, d, s.Sessions.Load(), s.Resets.Load(), gb(s.Sent.Load()), gb(s.Got.Load()), s.Passed.Load(), theirsAfter.Passed)
	fmt.Printf("%s: here  %+v, then %+v\n", s.device, before, after)
	fmt.Printf("%s: there %+v, then %+v\n", s.device, theirs.Held, theirsAfter.Held)
	return nil
}

func gb(n int64) float64 { return float64(n) / 1e9 }

// waitIdle waits until no session is active, and returns what both processes hold.
func (s *soak) waitIdle(server *traffic.Second) (here traffic.Held, there answer, err error) {
	s.mu.Lock()
	err = s.err
	if err != nil {
		err = fmt.Errorf("%s, %s: %w", s.device, s.where, err)
	}
	s.mu.Unlock()
	if err != nil {
		return here, there, err
	}
	there, err = ask(server)
	if err == nil && there.Failed > 0 {
		err = fmt.Errorf("%s: %d sessions failed in the second process, the first with: %s", s.device, there.Failed, there.FirstFailure)
	}
	return traffic.HeldNow(), there, err
}

// sessions runs sessions on s.conns workers until the given time, or until one fails.
func (s *soak) sessions(address string, until time.Time) {
	var working sync.WaitGroup
	for range s.conns {
		working.Go(func() {
			d := sdp.Dialer{Config: config(s.device)}
			for time.Now().Before(until) && !s.failed() {
				seed := s.seed.Add(1)
				err := s.session(&d, address, seed)
				if err != nil {
					s.fail(seed, err)
				}
			}
		})
	}
	working.Wait()
}

func (s *soak) session(d *sdp.Dialer, address string, seed uint64) error {
	c, err := d.Dial("sdp", address)
	if err != nil {
		return err
	}
	if device := c.(*sdp.Conn).Device(); device != s.device {
		c.Close()
		return errors.New("the connection uses " + device)
	}
	r, err := traffic.Client(c, traffic.Spec{Seed: seed, MaxBytes: longest, Deadlines: seed%2 == 0, Resets: true})
	s.add(r)
	return err
}

func (s *soak) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

func (s *soak) fail(seed uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err, s.where = err, fmt.Sprint("seed ", seed)
	}
}
