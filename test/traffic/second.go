package traffic

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Second is a second process of the same program, which answers requests over its standard
// streams. It is not safe for concurrent use.
type Second struct {
	First  string // line that it printed: its addresses
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// StartSecond starts this program again with a further environment variable, and waits for its
// first line.
func StartSecond(variable string) (*Second, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &Second{cmd: exec.Command(program)}
	// By default the race detector sleeps for a second when a process exits.
	s.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", variable)
	s.cmd.Stderr = os.Stderr
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.stdout = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := s.stdout.ReadString('\n')
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("no address from the second process: %w", err)
	}
	s.First = strings.TrimSuffix(line, "\n")
	return s, nil
}

// Ask requests an answer.
func (s *Second) Ask(answer any) error {
	if _, err := io.WriteString(s.stdin, "\n"); err != nil {
		return err
	}
	line, err := s.stdout.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, answer)
}

// Stop ends the process and returns its exit error.
func (s *Second) Stop() error {
	s.stdin.Close()
	return s.cmd.Wait()
}

// Answer is the second process's side. It prints the first line and answers each request, until
// its standard input ends.
func Answer(first string, answer func() any) error {
	fmt.Println(first)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := json.NewEncoder(os.Stdout).Encode(answer()); err != nil {
			return err
		}
	}
	return nil
}
