// Package process lets an example run as two processes. The first is the client. It
// starts its own program again as the server.
package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Start starts this program again as a server with args, sends it input as JSON if
// that is not nil, and waits until it serves. It returns the server's address and a
// function that stops the server and returns an error if the server failed.
func Start(input any, args ...string) (address string, stop func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	child := exec.CommandContext(ctx, program, args...)
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
	// Closing the server's standard input asks it to end. It is killed only if it
	// does not end in time.
	child.Cancel = stdin.Close
	child.WaitDelay = 5 * time.Second
	if err := child.Start(); err != nil {
		cancel()
		return "", nil, err
	}
	stop = func() error {
		cancel()
		child.Wait() // always returns an error after cancel; the process state does not
		if !child.ProcessState.Success() {
			return fmt.Errorf("server process: %s", child.ProcessState)
		}
		return nil
	}
	if input != nil {
		if err := json.NewEncoder(stdin).Encode(input); err != nil {
			return "", nil, errors.Join(err, stop())
		}
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return "", nil, fmt.Errorf("start server process: %w", errors.Join(err, stop()))
	}
	return strings.TrimSpace(line), stop, nil
}

// Input decodes what the parent process passed to Start. Secrets must be passed this way,
// because other users may be able to read arguments and the environment.
func Input(input any) error {
	return json.NewDecoder(os.Stdin).Decode(input)
}

// Announce sends the address of this server to the parent process. It calls end when the
// parent asks this process to end, or dies.
func Announce(address net.Addr, end func()) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
	fmt.Println(address)
}
