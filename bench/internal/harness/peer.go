// Package harness has two processes talk over contenders: the one that measures
// and its peer, a second run of the same program. Both know [Contenders] and
// [Cases], so that a case is two functions in one table and a contender is
// another two.
package harness

import (
	"context"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"time"
)

// A Peer is the other process, seen from the one that measures.
type Peer struct {
	cancel  context.CancelFunc
	process *exec.Cmd
	control *rpc.Client // over the process's standard input and output
}

// StartPeer runs this program again as the peer. The program calls [PeerMain]
// first of all.
func StartPeer() (*Peer, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	process := exec.CommandContext(ctx, program)
	process.Env = append(os.Environ(), peerRole+"=1")
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	// The end of its input ends the peer; it is killed only if it does not.
	process.Cancel = in.Close
	process.WaitDelay = 5 * time.Second
	if err := process.Start(); err != nil {
		cancel()
		return nil, err
	}
	return &Peer{cancel, process, rpc.NewClient(pipes{out, in})}, nil
}

// CPU returns the processor time that the peer has used, user and system.
func (p *Peer) CPU() (used time.Duration, err error) {
	err = p.control.Call(serviceName+".CPU", struct{}{}, &used)
	return used, err
}

// listen has the peer listen over the contender and returns where.
func (p *Peer) listen(c Contender) (address string, err error) {
	err = p.control.Call(serviceName+".Listen", c.Name, &address)
	return address, err
}

// Close ends the peer.
func (p *Peer) Close() error {
	p.cancel()
	p.process.Wait()
	if state := p.process.ProcessState; !state.Success() {
		return fmt.Errorf("the peer: %s", state)
	}
	return nil
}

// pipes are a process's standard streams as one connection.
type pipes struct {
	io.ReadCloser
	io.Writer
}
