package parity

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// An exitRun is one run of the exit table: a writer that ends without Close, and
// a reader.
type exitRun struct {
	stack       string
	row, ending int
}

// An outcome is how an exitRun went.
type outcome struct {
	got int    // bytes, each checked
	end string // of the stream
	err error  // the run itself failed
}

// slots bound how many runs there are at a time. A run that only waits gives up
// its place among the busy ones.
type slots struct{ open, busy chan struct{} }

func newSlots() slots {
	return slots{open: make(chan struct{}, 32), busy: make(chan struct{}, 4)}
}

func (s slots) wait(d time.Duration) {
	<-s.busy
	time.Sleep(d)
	s.busy <- struct{}{}
}

// do executes the run.
func (e exitRun) do(s slots) (o outcome) {
	s.open <- struct{}{}
	defer func() { <-s.open }()
	s.busy <- struct{}{}
	defer func() { <-s.busy }()
	row := &exitRows[e.row]
	reader, err := startExit(fmt.Sprint("exit-reader ", e.stack, " ", e.row))
	if err != nil {
		return outcome{err: err}
	}
	defer reader.kill()
	address, err := reader.line()
	if err != nil {
		return outcome{err: reader.failed("reader", err)}
	}
	if err := e.write(row, address, s); err != nil {
		return outcome{err: err}
	}
	if row.acceptLate > 0 {
		s.wait(row.acceptLate)
		reader.tell("accept")
	}
	said, err := reader.line()
	if err != nil {
		return outcome{err: reader.failed("reader", err)}
	}
	if _, err := fmt.Sscan(said, &o.got); err != nil {
		return outcome{err: reader.failed("reader", err)}
	}
	_, o.end, _ = strings.Cut(said, " ")
	return o
}

// write runs the writer, and checks that it ends as it is to.
func (e exitRun) write(row *row, address string, s slots) error {
	writer, err := startExit(fmt.Sprint("exit-writer ", e.stack, " ", e.row, " ", e.ending, " ", address))
	if err != nil {
		return err
	}
	defer writer.kill()
	if _, err = writer.line(); err == nil && row.pause > 0 {
		_, err = writer.line()
		s.wait(row.pause)
		writer.tell("go on")
	}
	if err != nil {
		return writer.failed("writer", err)
	}
	err = writer.wait()
	var exit *exec.ExitError
	ended := false
	switch endings[e.ending] {
	case "panic":
		ended = errors.As(err, &exit) && exit.ExitCode() == 2 && strings.Contains(writer.stderr.String(), exitPanic)
	case "SIGKILL":
		ended = errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL && !writer.late
	default:
		ended = err == nil
	}
	if !ended {
		return writer.failed("writer", err)
	}
	return nil
}

// An exitProcess is a writer or a reader. It is killed when it takes too long.
type exitProcess struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
	alarm  *time.Timer
	ended  bool
	late   bool
}

func startExit(role string) (*exitProcess, error) {
	p := &exitProcess{cmd: command(role)}
	p.cmd.Stderr = &p.stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdout = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.alarm = time.AfterFunc(time.Minute, func() { p.cmd.Process.Kill() })
	return p, nil
}

func (p *exitProcess) line() (string, error) {
	text, err := p.stdout.ReadString('\n')
	return strings.TrimSpace(text), err
}

func (p *exitProcess) tell(text string) { fmt.Fprintln(p.stdin, text) }

// wait waits for the process's own end.
func (p *exitProcess) wait() error {
	err := p.cmd.Wait()
	p.ended, p.late = true, !p.alarm.Stop()
	return err
}

func (p *exitProcess) kill() {
	if p.ended {
		return
	}
	p.cmd.Process.Kill()
	p.wait()
}

// failed ends the process and says what is known of its failure.
func (p *exitProcess) failed(name string, err error) error {
	p.kill()
	return fmt.Errorf("the %s fails: %w, %v\n%s", name, err, p.cmd.ProcessState, p.stderr.String())
}
