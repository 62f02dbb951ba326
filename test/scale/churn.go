package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/test/traffic"
)

// churn is the first process's work on one device.
type churn struct {
	device  string
	rate    int
	beside  int
	profile string

	addresses []string

	mu    sync.Mutex
	err   error           // the first error of a connection
	times []time.Duration // of connections, from the dial until Close has returned
}

// result is the result of a churn.
type result struct {
	device        string
	took          time.Duration
	done          int
	times         []time.Duration // in order
	here, there   [2]traffic.Held // before and after
	cpu, cpuThere time.Duration
	waiting       int // sockets in TIME_WAIT
}

func (r result) String() string {
	each := func(d time.Duration) time.Duration { return d / time.Duration(r.done) }
	at := func(part float64) time.Duration {
		return r.times[int(part*float64(len(r.times)-1))].Round(time.Microsecond)
	}
	return fmt.Sprintf(`%s: %d connections in %v, %.0f a second; p50 %v, p99 %v, maximum %v
%[1]s: %[8]v of processor time per connection, %[9]v here and %[10]v there; %[11]d sockets in TIME_WAIT at the end
%[1]s: here  %+[12]v, then %+[13]v
%[1]s: there %+[14]v, then %+[15]v`,
		r.device, r.done, r.took.Round(time.Millisecond), float64(r.done)/r.took.Seconds(), at(0.5), at(0.99), at(1),
		each(r.cpu+r.cpuThere), each(r.cpu), each(r.cpuThere), r.waiting,
		r.here[0], r.here[1], r.there[0], r.there[1])
}

// run opens and closes connections for d, after a warm-up of d/10, and checks that nothing
// leaks.
func (c *churn) run(d time.Duration) (r result, err error) {
	if c.profile != "" {
		os.Setenv(profileVariable, filepath.Join(c.profile, c.device+"-server.prof"))
		defer os.Unsetenv(profileVariable)
	}
	server, err := traffic.StartSecond(serveVariable + "=" + c.device)
	if err != nil {
		return r, err
	}
	defer server.Stop()
	c.addresses = strings.Fields(server.First)
	if c.profile != "" {
		stop, err := profileTo(filepath.Join(c.profile, c.device+"-client.prof"))
		if err != nil {
			return r, err
		}
		defer stop()
	}
	c.connections(d / 10)
	var before, after answer
	r.device = c.device
	if r.here[0], before, err = c.waitIdle(server); err != nil {
		return r, err
	}
	used, begin := processorTime(), time.Now()
	c.times = nil
	c.connections(d)
	r.took, r.cpu, r.done, r.times = time.Since(begin), processorTime()-used, len(c.times), c.times
	c.times = nil
	r.waiting = timeWait(c.addresses)
	slices.Sort(r.times)
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if r.here[1], after, err = c.waitIdle(server); err != nil {
			return r, err
		}
		if r.cpuThere == 0 { // later requests also take processor time
			r.cpuThere = after.CPU - before.CPU
		}
		more, theirMore := r.here[1].Excess(r.here[0], traffic.Slack), after.Held.Excess(before.Held, traffic.Slack)
		if more == "" && theirMore == "" {
			r.there = [2]traffic.Held{before.Held, after.Held}
			return r, nil
		}
		if time.Now().After(until) {
			return r, fmt.Errorf("%s: leak: here %q, there %q", c.device, more, theirMore)
		}
	}
}

// waitIdle waits until no connection is open, and returns what both processes hold.
func (c *churn) waitIdle(server *traffic.Second) (here traffic.Held, there answer, err error) {
	if c.err != nil {
		return here, there, fmt.Errorf("%s: %w", c.device, c.err)
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err = server.Ask(&there); err != nil {
			return here, there, err
		}
		if there.Failed > 0 {
			return here, there, fmt.Errorf("%s: %d connections failed in the second process, the first with: %s", c.device, there.Failed, there.First)
		}
		if there.Active == 0 {
			return traffic.HeldNow(), there, nil
		}
		if time.Now().After(until) {
			return here, there, fmt.Errorf("%s: %d connections are open in the second process although the first has closed all", c.device, there.Active)
		}
	}
}

// connections opens and closes connections for d at the given rate, with a limited number at a
// time.
func (c *churn) connections(d time.Duration) {
	dialer := sdp.Dialer{Config: config(c.device)}
	dial := func(address string) (net.Conn, error) { return dialer.Dial("sdp", address) }
	if c.device == tcp {
		dial = func(address string) (net.Conn, error) { return net.Dial("tcp", address) }
	}
	var working sync.WaitGroup
	slots := make(chan struct{}, c.beside)
	begin := time.Now()
	for i := 0; time.Since(begin) < d && !c.failed(); i++ {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(c.rate))))
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			since := time.Now()
			err := c.connection(dial, c.addresses[i%len(c.addresses)], uint64(i))
			c.mu.Lock()
			defer c.mu.Unlock()
			c.times = append(c.times, time.Since(since))
			if c.err == nil {
				c.err = err
			}
		})
	}
	working.Wait()
}

func (c *churn) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// connection opens, uses and closes one connection.
func (c *churn) connection(dial func(string) (net.Conn, error), address string, n uint64) error {
	conn, err := dial(address)
	if err != nil {
		return err
	}
	err = func() error {
		if up, ok := conn.(*sdp.Conn); ok && up.Device() != c.device {
			return errors.New("the connection uses " + up.Device())
		}
		b := binary.BigEndian.AppendUint64(nil, n)
		if _, err := conn.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
		if got := binary.BigEndian.Uint64(b); got != n {
			return &traffic.WrongError{What: fmt.Sprintf("%d came back as %d", n, got)}
		}
		return nil
	}()
	return errors.Join(err, conn.Close())
}

// timeWait counts the sockets in TIME_WAIT from or to the addresses. It returns 0 without
// /proc.
func timeWait(addresses []string) (n int) {
	const state = "06"
	ours := make(map[string]bool)
	for _, address := range addresses {
		_, port, _ := net.SplitHostPort(address)
		number, _ := strconv.Atoi(port)
		ours[fmt.Sprintf("%04X", number)] = true
	}
	sockets, _ := os.ReadFile("/proc/net/tcp")
	for line := range strings.Lines(string(sockets)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != state {
			continue
		}
		for _, end := range f[1:3] {
			if _, port, _ := strings.Cut(end, ":"); ours[port] {
				n++
				break
			}
		}
	}
	return n
}
