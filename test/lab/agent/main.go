//go:build linux

// Agent runs inside the lab. It connects to the test at the address in its argument, and runs
// scripts for it until the test closes the connection.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"sync"

	"github.com/gosdp/gosdp/test/lab/group"
)

func main() {
	conn, err := net.Dial("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
	if err := rpc.Register(new(Agent)); err != nil {
		panic(err)
	}
	rpc.ServeConn(conn)
}

// Agent has the methods that the test calls. They are safe for concurrent use.
type Agent struct {
	mu      sync.Mutex
	last    int
	scripts map[int]*script
}

// script is a script that was started and not waited for.
type script struct {
	cmd    *exec.Cmd
	output bytes.Buffer
}

// Result is how a script ended.
type Result struct {
	Output string // standard output and standard error interleaved
	Status int    // -1 means that a signal ended it
}

// Start starts a script with bash and returns its number.
func (a *Agent) Start(text string, id *int) error {
	s := &script{cmd: exec.Command("bash", "-c", text)}
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	group.Own(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	if a.scripts == nil {
		a.scripts = make(map[int]*script)
	}
	a.scripts[a.last] = s
	*id = a.last
	return nil
}

// Wait waits until a script, and every process that writes to its output, has ended.
func (a *Agent) Wait(id int, result *Result) error {
	s, err := a.script(id)
	if err != nil {
		return err
	}
	err = s.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return err
	}
	*result = Result{s.output.String(), s.cmd.ProcessState.ExitCode()}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.scripts, id)
	return nil
}

// Kill sends SIGKILL to a script that was not waited for, and to the processes that it
// started.
func (a *Agent) Kill(id int, _ *struct{}) error {
	s, err := a.script(id)
	if err != nil {
		return err
	}
	return group.Kill(s.cmd)
}

func (a *Agent) script(id int) (*script, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.scripts[id]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("unknown script %d", id)
}
