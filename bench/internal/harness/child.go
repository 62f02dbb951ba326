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

// childRole is the environment variable that makes a program a child.
const childRole = "GOSDP_BENCH_CHILD"

// childService is what the measuring process calls a child's methods by.
const childService = "Child"

// ChildMain does a child's work if that is what this process was started for,
// and then says true.
func ChildMain() bool {
	if os.Getenv(childRole) == "" {
		return false
	}
	raiseFileLimit()
	c := new(child)
	server := rpc.NewServer()
	if err := server.RegisterName(childService, c); err != nil {
		panic(err) // its methods are not what net/rpc can call
	}
	server.ServeConn(pipes{os.Stdin, os.Stdout})
	c.close()
	return true
}

// A child is what the measuring process asks of the two processes that it
// measures, by net/rpc. It makes one call at a time. One process is asked to
// Listen, the other one to Open.
type child struct {
	listener net.Listener
	load     load
	times    times
	profile  *os.File
}

// Place is where a load runs: a contender's name, a case, and the address where
// the other process listens.
type Place struct {
	Contender string
	Case      Case
	Address   string
}

// openTime is how long all connections of a load may take to come up.
const openTime = 2 * time.Minute

// Listen listens over the contender, serves what the case asks for, and says
// where.
func (c *child) Listen(at Place, address *string) error {
	contender, err := Find(at.Contender)
	if err != nil {
		return err
	}
	if c.listener, err = contender.Listen(); err != nil {
		return err
	}
	*address = c.listener.Addr().String()
	go func() {
		err := kinds[at.Case.Kind].serve(c.listener)
		if err != nil && !errors.Is(err, net.ErrClosed) {
			// The client must not wait for what nobody serves.
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", at.Contender, err)
			os.Exit(1)
		}
	}()
	return nil
}

// Open dials what the case needs.
func (c *child) Open(at Place, _ *struct{}) error {
	contender, err := Find(at.Contender)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	c.load, err = kinds[at.Case.Kind].open(ctx, target{contender, at.Address}, at.Case)
	return err
}

// Run has n messages cross.
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
	// What histograms cost to read is no part of it.
	result.Latency = c.times.latency()
	return err
}

// Idleness is what a process has used while it had nothing to do.
type Idleness struct {
	Took, CPU time.Duration
}

// settling is what a process is given to come to rest: what it has just done, being
// asked included, is not to count.
const settling = 30 * time.Millisecond

// Idle waits for so many milliseconds.
func (c *child) Idle(n int, idle *Idleness) error {
	time.Sleep(settling)
	start := time.Now()
	before, err := cpu()
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(n) * time.Millisecond)
	after, err := cpu()
	idle.Took, idle.CPU = time.Since(start), after-before
	return err
}

// Usage says what this process has used so far.
func (c *child) Usage(_ struct{}, used *Usage) (err error) {
	*used, err = usage()
	return err
}

// Memory says what this process holds, after a garbage collection.
func (c *child) Memory(_ struct{}, held *Memory) (err error) {
	debug.FreeOSMemory()
	*held, err = memory()
	return err
}

// Profile begins a CPU profile, that ends with the process.
func (c *child) Profile(file string, _ *struct{}) (err error) {
	if c.profile, err = os.Create(file); err != nil {
		return err
	}
	return pprof.StartCPUProfile(c.profile)
}

// close ends what would outlive the process, which ends next.
func (c *child) close() {
	if c.profile != nil {
		pprof.StopCPUProfile()
		c.profile.Close()
	}
	if c.listener != nil {
		c.listener.Close()
	}
}
