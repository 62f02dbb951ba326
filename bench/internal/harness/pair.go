// Package harness has two processes talk over contenders, under loads. The
// process that measures starts both, as further runs of the same program, and
// tells them what to do over their standard streams, so that it takes no part in
// what it measures.
package harness

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// A Pair is the two processes of one contender under one case. One goroutine at
// a time may use it.
type Pair struct {
	load           Case
	client, server *process
	empty          [2]Memory // what both held before the first connection
}

// StartPair starts the processes and opens the case's connections between them.
// A nil error means that Close must be called.
func StartPair(contender Contender, load Case) (*Pair, error) {
	p := &Pair{load: load}
	if err := p.start(contender); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// controlTime is how long a child may take for what is no load.
const controlTime = 20 * time.Second

func (p *Pair) start(contender Contender) (err error) {
	if p.server, err = startProcess(contender.Far); err != nil {
		return err
	}
	if p.client, err = startProcess(contender.Far); err != nil {
		return err
	}
	if contender.Far {
		if err := wire(p.server.cmd.Process.Pid, p.client.cmd.Process.Pid); err != nil {
			return err
		}
	}
	at := Place{Contender: contender.Name, Case: p.load}
	if err := p.server.call(controlTime, "Listen", at, &at.Address); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if p.load.Kind.holds() {
		if p.empty, err = p.memory(); err != nil {
			return err
		}
	}
	if err := p.client.call(openTime+controlTime, "Open", at, &struct{}{}); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	return nil
}

// A Turn is what one run of a load has shown.
type Turn struct {
	Messages int
	Result
	CPU    time.Duration // of both processes
	Allocs uint64        // of both processes

	Empty, Full [2]Memory // of client and server without and with the connections, for kinds that measure it
}

// Result is what the client has seen of a run.
type Result struct {
	Took    time.Duration
	Latency Latency
	Used    Usage // by the client itself
}

// turnLimit is how long a turn may take, however long it was meant to.
const turnLimit = time.Minute

// Run has n messages of the case cross, and returns when all of them have
// arrived. For Conns n is a number of milliseconds.
func (p *Pair) Run(n int) (Turn, error) {
	if p.load.Kind == Conns {
		return p.idle(n)
	}
	t := Turn{Messages: n}
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
	if err == nil && p.load.Kind.holds() {
		t.Empty = p.empty
		t.Full, err = p.memory()
	}
	return t, err
}

// idle looks at connections that do nothing for n milliseconds. Each process
// takes its own time, because asking for it is work too.
func (p *Pair) idle(n int) (Turn, error) {
	t := Turn{Messages: n, Empty: p.empty}
	var used [2]Idleness
	server := make(chan error, 1)
	go func() { server <- p.server.call(turnLimit, "Idle", n, &used[1]) }()
	err := errors.Join(p.client.call(turnLimit, "Idle", n, &used[0]), <-server)
	if err != nil {
		return t, err
	}
	t.Took = used[0].Took
	t.CPU = used[0].CPU + used[1].CPU
	t.Full, err = p.memory()
	return t, err
}

// CPU is the processor time that both processes have used.
func (p *Pair) CPU() (sum time.Duration, err error) {
	err = p.each(func(process *process, _ string) error {
		used, err := process.usage()
		sum += used.CPU
		return err
	})
	return sum, err
}

// Profile has each process write a CPU profile, from now to its end, in the
// directory.
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

// memory is what the client holds, and the server.
func (p *Pair) memory() (held [2]Memory, err error) {
	err = errors.Join(
		p.client.call(controlTime, "Memory", struct{}{}, &held[0]),
		p.server.call(controlTime, "Memory", struct{}{}, &held[1]))
	return held, err
}

// each calls f with both processes, the client first, so that the server sees
// connections end.
func (p *Pair) each(f func(process *process, role string) error) error {
	return errors.Join(f(p.client, "client"), f(p.server, "server"))
}
