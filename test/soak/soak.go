package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/test/traffic"
)

// A load is a kind of sessions.
type load struct {
	name   string
	beside int           // concurrent connections
	every  time.Duration // between the beginnings of connections; 0 means without a pause
	spec   traffic.Spec  // Seed and Deadlines are those of each session
}

var loads = []load{
	{"sessions of all sizes", 16, 0, traffic.Spec{MaxBytes: 16 << 20, Resets: true}},
	{"short connections", 64, time.Millisecond, traffic.Spec{MaxBytes: 64}},
}

// A soak is the first process's work on one device.
type soak struct {
	device    string
	addresses []string

	mu                       sync.Mutex
	seed                     uint64 // of the next session
	sessions, resets, passed int
	sent, got                int64
	err                      error // the first error of a session
}

// idleTime limits how long both processes may take to end what has been closed.
const idleTime = time.Minute

// run runs a load for d and checks that nothing leaks. It returns what was done.
func run(device string, l load, d time.Duration, seed uint64) (string, error) {
	server, err := traffic.StartSecond(serveVariable + "=" + device)
	if err != nil {
		return "", err
	}
	defer server.Stop()
	s := &soak{device: device, addresses: strings.Fields(server.First), seed: seed}
	s.load(l, d/10)
	here, there, err := s.idle(server)
	if err != nil {
		return "", err
	}
	s.load(l, d-d/10)
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) { // the last goroutines may still be ending
		hereAfter, thereAfter, err := s.idle(server)
		if err != nil {
			return "", err
		}
		more, theirMore := hereAfter.Excess(here, traffic.Slack), thereAfter.Excess(there, traffic.Slack)
		if more == "" && theirMore == "" {
			return fmt.Sprintf("%s, %s: %d sessions in %v (%d reset), %d MB there, %d MB back, every byte correct; %d deadlines expired during calls",
				device, l.name, s.sessions, d, s.resets, s.sent>>20, s.got>>20, s.passed), nil
		}
		if time.Since(begin) > idleTime {
			return "", fmt.Errorf("%s, %s: leak: here %q, there %q", device, l.name, more, theirMore)
		}
	}
}

// idle waits until no session is active, and returns what both processes hold.
func (s *soak) idle(server *traffic.Second) (here, there traffic.Held, err error) {
	if s.err != nil {
		return here, there, s.err
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		var a answer
		if err := server.Ask(&a); err != nil {
			return here, there, err
		}
		switch {
		case a.Failed > 0:
			return here, there, fmt.Errorf("%s: %d sessions failed in the second process, the first with: %s", s.device, a.Failed, a.FirstFailure)
		case a.Active == 0:
			return traffic.HeldNow(), a.Held, nil
		case time.Since(begin) > idleTime:
			return here, there, fmt.Errorf("%s: %d sessions are active in the second process although all have ended in the first", s.device, a.Active)
		}
	}
}

// load runs sessions for d, or until one fails.
func (s *soak) load(l load, d time.Duration) {
	var working sync.WaitGroup
	defer working.Wait()
	slots := make(chan struct{}, l.beside)
	begin := time.Now()
	for i := 0; i == 0 || time.Since(begin) < d; i++ {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * l.every)))
		slots <- struct{}{}
		spec := l.spec
		s.mu.Lock()
		spec.Seed, spec.Deadlines = s.seed, s.seed%2 == 0
		s.seed++
		failed := s.err != nil
		s.mu.Unlock()
		if failed {
			return
		}
		working.Go(func() {
			r, err := s.session(s.addresses[i%len(s.addresses)], spec)
			<-slots
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sessions++
			s.passed += r.Passed
			s.sent += int64(r.Sent)
			s.got += int64(r.Got)
			if r.Reset {
				s.resets++
			}
			if err != nil && s.err == nil {
				s.err = fmt.Errorf("%s, seed %d: %w", s.device, spec.Seed, err)
			}
		})
	}
}

// session runs a session on a new connection.
func (s *soak) session(address string, spec traffic.Spec) (traffic.Result, error) {
	c, err := (&sdp.Dialer{Config: config(s.device)}).Dial("sdp", address)
	if err != nil {
		return traffic.Result{}, err
	}
	return traffic.Client(c, spec)
}
