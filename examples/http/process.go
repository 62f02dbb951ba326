package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// startServer runs this program again as the server of dir over the named
// stack, and returns the address it serves and a function that ends it.
func startServer(stackName, dir string) (address string, stop func(), err error) {
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
	stop = func() {
		cancel()
		child.Wait()
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("the %s server ended before it listened", stackName)
	}
	return strings.TrimSpace(line), stop, nil
}
