package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// startServer runs this program again as the server of dir over the named
// stack, and returns the address it serves and a function that ends it and says
// whether all was well with it.
func startServer(stackName, dir string) (address string, stop func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	child := exec.CommandContext(ctx, program, "-serve", stackName, "-dir", dir)
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		cancel()
		return "", nil, err
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		cancel()
		return "", nil, err
	}
	// The end of its input is how the server is asked to end; it is killed only
	// if it does not.
	child.Cancel = stdin.Close
	child.WaitDelay = 5 * time.Second
	if err := child.Start(); err != nil {
		cancel()
		return "", nil, err
	}
	stop = func() error {
		cancel()
		child.Wait() // tells of the cancel; the state tells how the server took it
		if !child.ProcessState.Success() {
			return fmt.Errorf("the %s server: %s", stackName, child.ProcessState)
		}
		return nil
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return "", nil, fmt.Errorf("no address from the server: %w", errors.Join(err, stop()))
	}
	return strings.TrimSpace(line), stop, nil
}
