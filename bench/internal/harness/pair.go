// Package harness runs loads between two processes over contenders. The measuring
// process starts both as copies of its own program and controls them over their
// standard streams, so that it does not disturb the measurement.
package harness

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// A Pair is the two processes of one contender under one case. It is not safe for
// concurrent use.
type Pair struct {
	load           Case
	client, server *process
	empty          [2]Memory // of client and server, before the first connection
}

// StartPair starts the processes and opens the case's connections between them.
// Call Close on the Pair to end them.
func StartPair(contender Contender, load Case) (*Pair, error) {
	p := &Pair{load: load}
	if err := p.start(contender); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// controlTime limits the time for calls other than loads.
const controlTime = 20 * time.Second

func (p *Pair) start(contender Contender) (err error) {
	if p.server, err = startProcess(contender.Far); err != nil {
		return err
	}
	if p.client, err = startProcess(contender.Far); err != nil {
		return err
	}
	if contender.Far {
		if err := linkNamespaces(p.server.cmd.Process.Pid, p.client.cmd.Process.Pid); err != nil {
			return err
		}
	}
	at := Place{Contender: contender.Name, Case: p.load}
	if err := p.server.call(controlTime, "Listen", at, &at.Address); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if p.load.Kind.measuresMemory() {
		if p.empty, err = p.memory(); err != nil {
			return err
		}
	}
	if err := p.client.call(openTime+controlTime, "Open", at, &struct{}{}); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	return nil
}

// A Turn is the result of one run of a load.
type Turn struct {
	Messages int
	Result
	CPU    time.Duration // of both processes
	Allocs uint64        // of both processes

	Empty, Full [2]Memory // of client and server without and with the connections, for kinds that measure it
}

// Result is what the client measured in a run.
type Result struct {
	Took    time.Duration
	Latency Latency
	Used    Usage // by the client itself
}

// turnLimit is the longest time that a turn may take, whatever its intended length.
const turnLimit = time.Minute

// Run transfers n messages of the case and returns when all have arrived. For
// idle kinds, n is a number of milliseconds.
func (p *Pair) Run(n int) (Turn, error) {
	if p.load.Kind.isIdle() {
		return p.idle(n)
	}
	t := Turn{Messages: n}
	if err := p.client.call(turnLimit, "Prepare", struct{}{}, &struct{}{}); err != nil {
		return t, err
	}
	before, err := p.server.usage()
	if err != nil {
		return t, err
	}
	if err := p.client.call(turnLimit, "Run", n, &t.Result); err != nil {
		return t, err
	}
	after, err := p.server.usage()
	server := after.since(before)
	t.CPU = t.Used.CPU + server.CPU
	t.Allocs = t.Used.Allocs + server.Allocs
	if err != nil {
		return t, err
	}
	err = p.measureMemory(&t)
	return t, err
}

// settling is the time that the processes get to become idle, so that the work before
// is not counted.
const settling = 30 * time.Millisecond

// idle measures connections that do nothing for n milliseconds. It asks the processes for
// nothing meanwhile, because the answer would be work, and more of it than the connections'.
func (p *Pair) idle(n int) (Turn, error) {
	t := Turn{Messages: n}
	time.Sleep(settling)
	start := time.Now()
	before, err := p.CPU()
	if err != nil {
		return t, err
	}
	time.Sleep(time.Duration(n) * time.Millisecond)
	after, err := p.CPU()
	if err != nil {
		return t, err
	}
	t.Took, t.CPU = time.Since(start), after-before
	err = p.measureMemory(&t)
	return t, err
}

// CPU returns the processor time that both processes have used.
func (p *Pair) CPU() (sum time.Duration, err error) {
	err = p.each(func(process *process, _ string) error {
		used, err := process.cpuTime()
		sum += used
		return err
	})
	return sum, err
}

// Profile makes each process write a CPU profile to dir, from now until it exits.
func (p *Pair) Profile(dir, name string) error {
	name = strings.ReplaceAll(name, "/", "-")
	return p.each(func(process *process, role string) error {
		return process.call(controlTime, "Profile", filepath.Join(dir, name+"-"+role+".prof"), &struct{}{})
	})
}

// Close ends both processes.
func (p *Pair) Close() error {
	return p.each(func(process *process, role string) error {
		if process == nil {
			return nil
		}
		if err := process.close(); err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
		return nil
	})
}

// measureMemory adds to t what the processes hold, for kinds that measure it.
func (p *Pair) measureMemory(t *Turn) (err error) {
	if p.load.Kind.measuresMemory() {
		t.Empty = p.empty
		t.Full, err = p.memory()
	}
	return err
}

// memory returns what the client and the server hold, in this order.
func (p *Pair) memory() (held [2]Memory, err error) {
	err = errors.Join(
		p.client.call(controlTime, "Memory", struct{}{}, &held[0]),
		p.server.call(controlTime, "Memory", struct{}{}, &held[1]))
	return held, err
}

// each calls f with both processes, the client first, so that the server sees the
// connections end.
func (p *Pair) each(f func(process *process, role string) error) error {
	return errors.Join(f(p.client, "client"), f(p.server, "server"))
}
