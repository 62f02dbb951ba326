package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"time"
)

// childRole is the environment variable that turns a process into a child.
const childRole = "GOSDP_BENCH_CHILD"

// childService is the name under which a child registers its methods with net/rpc.
const childService = "Child"

// ChildMain does a child's work and returns true if this process was started as
// a child. Otherwise it returns false at once.
func ChildMain() bool {
	if os.Getenv(childRole) == "" {
		return false
	}
	raiseFileLimit()
	c := new(child)
	server := rpc.NewServer()
	if err := server.RegisterName(childService, c); err != nil {
		panic(err) // net/rpc cannot call its methods
	}
	server.ServeConn(pipes{os.Stdin, os.Stdout})
	c.close()
	return true
}

// A child is one of the two measured processes. The measuring process calls its
// methods by net/rpc, one at a time: Listen in one process, Open in the other.
type child struct {
	listener net.Listener
	load     load
	times    times
	profile  *os.File
}

// Place says where a load runs: the contender's name, the case, and the address on
// which the other process listens.
type Place struct {
	Contender string
	Case      Case
	Address   string
}

// openTime limits the time for opening all connections of a load.
const openTime = 2 * time.Minute

// Listen listens with the contender, serves the case's clients, and sets listens to the address.
func (c *child) Listen(at Place, listens *string) error {
	contender, err := Find(at.Contender)
	if err != nil {
		return err
	}
	address := loopback
	if at.Case.Kind.learns() && contender.Local {
		address = everywhere
	}
	if c.listener, err = contender.Listen(address); err != nil {
		return err
	}
	*listens = c.listener.Addr().String()
	go func() {
		err := kinds[at.Case.Kind].serve(c.listener)
		if err != nil && !errors.Is(err, net.ErrClosed) {
			// Exit, so that the client does not wait for a server that has stopped.
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", at.Contender, err)
			os.Exit(1)
		}
	}()
	return nil
}

// Open opens the connections of the case.
func (c *child) Open(at Place, _ *struct{}) error {
	contender, err := Find(at.Contender)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	c.load, err = kinds[at.Case.Kind].open(ctx, target{contender, at.Address, at.Case}, at.Case)
	return err
}

// Prepare does what comes before a turn.
func (c *child) Prepare(_ struct{}, _ *struct{}) error {
	if p, ok := c.load.(preparer); ok {
		return p.prepare()
	}
	return nil
}

// Run transfers n messages.
func (c *child) Run(n int, result *Result) error {
	c.times.reset()
	before, err := usage()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := c.load.run(n, &c.times); err != nil {
		return err
	}
	result.Took = time.Since(start)
	after, err := usage()
	result.Used = after.since(before)
	// Read the histograms last, so that this is not measured.
	result.Latency = c.times.latency()
	return err
}

// Usage reports what this process has used so far.
func (c *child) Usage(_ struct{}, used *Usage) (err error) {
	*used, err = usage()
	return err
}

// Memory reports what this process holds after a garbage collection.
func (c *child) Memory(_ struct{}, held *Memory) (err error) {
	debug.FreeOSMemory()
	*held, err = memory()
	return err
}

// Profile begins a CPU profile, which ends when the process exits.
func (c *child) Profile(file string, _ *struct{}) (err error) {
	if c.profile, err = os.Create(file); err != nil {
		return err
	}
	return pprof.StartCPUProfile(c.profile)
}

// close writes the profile and closes the listener before the process exits.
func (c *child) close() {
	if c.profile != nil {
		pprof.StopCPUProfile()
		c.profile.Close()
	}
	if c.listener != nil {
		c.listener.Close()
	}
}
