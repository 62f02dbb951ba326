// Package process lets an example be two processes: the one that was started is
// the client, and it starts its own program again as the server.
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

// Start runs this program again with args, as a server, gives it the gift if
// that is not nil, and waits until it serves. It returns the server's address,
// and a function that ends the server and says whether all was well with it.
func Start(gift any, args ...string) (address string, stop func() error, err error) {
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
			return fmt.Errorf("the server: %s", child.ProcessState)
		}
		return nil
	}
	if gift != nil {
		if err := json.NewEncoder(stdin).Encode(gift); err != nil {
			return "", nil, errors.Join(err, stop())
		}
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return "", nil, fmt.Errorf("no address from the server: %w", errors.Join(err, stop()))
	}
	return strings.TrimSpace(line), stop, nil
}

// Gift is what the server got from the process that started it. What is secret
// comes this way, since arguments and environments are there for others to read.
func Gift(gift any) error {
	return json.NewDecoder(os.Stdin).Decode(gift)
}

// Announce tells the process that started this one which address it serves, and
// calls end when that process asks it to end, or dies.
func Announce(address net.Addr, end func()) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
	fmt.Println(address)
}
