package harness

import (
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"time"
)

// A process is a measured process, which runs this program as a [child].
type process struct {
	cmd     *exec.Cmd
	control *rpc.Client // on its standard input and output
}

// startProcess starts this program again as a child. If far is set, the child gets its
// own network namespace. The program must call [ChildMain] first.
func startProcess(far bool) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childRole+"=1")
	cmd.Stderr = os.Stderr
	if far {
		unshare(cmd)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd, rpc.NewClient(pipes{out, in})}, nil
}

// errStalled says that a process did not answer in time.
var errStalled = errors.New("process does not respond")

// call calls a method of the child. It kills a process that takes longer than
// limit, because the call cannot be cancelled.
func (p *process) call(limit time.Duration, method string, args, reply any) error {
	call := p.control.Go(childService+"."+method, args, reply, make(chan *rpc.Call, 1))
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-call.Done:
		return call.Error
	case <-timer.C:
		p.cmd.Process.Kill()
		<-call.Done // ends because the pipes are closed
		return fmt.Errorf("%s: %w within %v", method, errStalled, limit)
	}
}

// usage returns what the process has used.
func (p *process) usage() (used Usage, err error) {
	err = p.call(controlTime, "Usage", struct{}{}, &used)
	return used, err
}

// exitTime is how long a child may take to exit after its input was closed.
const exitTime = 5 * time.Second

// close ends the process by closing its input, and kills it after exitTime. It
// returns an error if the process did not exit by itself.
func (p *process) close() error {
	p.control.Close()
	kill := time.AfterFunc(exitTime, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	return p.cmd.Wait()
}

// pipes combines a process's standard streams into one connection.
type pipes struct {
	io.ReadCloser
	in io.WriteCloser
}

func (p pipes) Write(b []byte) (int, error) { return p.in.Write(b) }

func (p pipes) Close() error { return errors.Join(p.in.Close(), p.ReadCloser.Close()) }
