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

// exitRun is one run of the exit table, with a writer that ends without Close, and a reader.
type exitRun struct {
	stack       string
	row, ending int
}

// outcome is the result of an exitRun.
type outcome struct {
	got int    // number of bytes, each of them right
	end string // how the stream ended
	err error  // failure of the run itself
}

// slots bound the number of concurrent runs. A run that only waits does not count as busy.
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
	line, err := reader.line()
	if err != nil {
		return outcome{err: reader.failed("reader", err)}
	}
	if _, err := fmt.Sscan(line, &o.got); err != nil {
		return outcome{err: reader.failed("reader", err)}
	}
	_, o.end, _ = strings.Cut(line, " ")
	return o
}

// write runs the writer, and checks that it ended as intended.
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

// exitProcess is a writer or a reader. It is killed after a minute.
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

// wait waits until the process has ended by itself.
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

// failed ends the process and returns an error with what is known about the failure.
func (p *exitProcess) failed(name string, err error) error {
	p.kill()
	return fmt.Errorf("the %s failed: %w, %v\n%s", name, err, p.cmd.ProcessState, p.stderr.String())
}
