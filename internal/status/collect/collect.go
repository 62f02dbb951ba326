// Package collect asks the programs of a host for the state of their connections. See package
// status for the other half.
package collect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/status"
)

const (
	// Patience is how long Collect waits for programs, all together.
	Patience = 200 * time.Millisecond
	// maxDocument limits the size of a program's answer, maxConns how many connections of a
	// program are read, and maxSockets how many sockets are asked.
	maxDocument = 8 << 20
	maxConns    = 20_000
	maxSockets  = 1024
	// atATime is how many sockets are asked concurrently.
	atATime = 16
)

// A Failure is a socket from which Collect got no state.
type Failure struct {
	Path string
	Err  error
}

func (f Failure) Error() string { return fmt.Sprintf("%s: %v", f.Path, f.Err) }

// Collect asks all programs whose sockets are in the directories. It returns those that
// answered within Patience, by process, and the reasons why others did not. It removes the sockets
// of dead programs.
func Collect(dirs []string) (programs []status.Program, failures []Failure) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	sockets, failures := find(dirs)
	type answer struct {
		socket  int
		program status.Program
		err     error
	}
	answers := make(chan answer, len(sockets)) // so that one that comes too late blocks nothing
	places := make(chan struct{}, atATime)
	go func() {
		for i, s := range sockets {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return
			}
			go func() {
				defer func() { <-places }()
				p, err := ask(ctx, s.path, s.owner)
				answers <- answer{i, p, err}
			}()
		}
	}()
	answered := make([]bool, len(sockets))
	for range sockets {
		select {
		case a := <-answers:
			answered[a.socket] = true
			if a.err != nil {
				failures = append(failures, Failure{sockets[a.socket].path, a.err})
			} else {
				programs = append(programs, a.program)
			}
			continue
		case <-ctx.Done():
		}
		break
	}
	for i, s := range sockets {
		if !answered[i] {
			failures = append(failures, Failure{s.path, errSlow})
		}
	}
	slices.SortFunc(programs, func(a, b status.Program) int { return cmp.Compare(a.PID, b.PID) })
	slices.SortFunc(failures, func(a, b Failure) int { return strings.Compare(a.Path, b.Path) })
	return programs, failures
}

// A socket is where a program of the owner of its directory may answer.
type socket struct {
	path  string
	owner int
}

func find(dirs []string) (sockets []socket, failures []Failure) {
	for _, dir := range dirs {
		owner, err := ownerOfDir(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var entries []os.DirEntry
		if err == nil {
			entries, err = os.ReadDir(dir)
		}
		if err != nil {
			failures = append(failures, Failure{dir, err})
			continue
		}
		for _, entry := range entries {
			if len(sockets) == maxSockets {
				return sockets, append(failures, Failure{dir, fmt.Errorf("more than %d sockets", maxSockets)})
			}
			sockets = append(sockets, socket{filepath.Join(dir, entry.Name()), owner})
		}
	}
	return sockets, failures
}

var errSlow = fmt.Errorf("the program did not answer within %v", Patience)

// ownerOfDir returns the user of a directory in which only that user can have made sockets.
func ownerOfDir(dir string) (uid int, err error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return 0, err
	}
	uid, _ = status.Owner(info)
	return uid, status.Private(dir, uid)
}

// ask returns the state of the program that serves the socket. owner is the user of its
// directory.
func ask(ctx context.Context, path string, owner int) (status.Program, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return status.Program{}, err
	}
	if info.Mode().Type() != os.ModeSocket {
		return status.Program{}, errors.New("not a socket")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return status.Program{}, gone(path)
	}
	if err != nil {
		return status.Program{}, slow(err)
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	conn.SetDeadline(end)
	uid, pid, err := status.Peer(conn.(*net.UnixConn))
	if err != nil {
		return status.Program{}, err
	}
	if uid != owner {
		return status.Program{}, fmt.Errorf("served by the user %d, in a directory of the user %d", uid, owner)
	}
	limited := &io.LimitedReader{R: conn, N: maxDocument}
	text, err := io.ReadAll(limited)
	switch {
	case err != nil:
		return status.Program{}, slow(err)
	case limited.N == 0:
		return status.Program{}, fmt.Errorf("the answer is longer than %d MB", maxDocument>>20)
	}
	p, err := decode(text)
	if err != nil {
		return status.Program{}, fmt.Errorf("the answer makes no sense: %w", err)
	}
	if pid != 0 {
		p.PID = pid // which the kernel says
	}
	p.UID = uid
	return p, nil
}

// decode reads a Program. It limits how much memory a short text can use.
func decode(text []byte) (status.Program, error) {
	var p struct {
		status.Program
		Conns conns `json:"connections"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return status.Program{}, err
	}
	p.Program.Conns = status.Conns(p.Conns)
	return p.Program, nil
}

type conns status.Conns

func (c *conns) UnmarshalJSON(text []byte) error {
	*c = nil
	d := json.NewDecoder(bytes.NewReader(text))
	if start, err := d.Token(); err != nil || start != json.Delim('[') {
		return errors.New("connections: not a list")
	}
	for d.More() {
		if len(*c) == maxConns {
			return fmt.Errorf("more than %d connections", maxConns)
		}
		var one status.Conn
		if err := d.Decode(&one); err != nil {
			return err
		}
		*c = append(*c, one)
	}
	return nil
}

// gone removes the socket of a program that has ended.
func gone(path string) error {
	text, _, _ := strings.Cut(filepath.Base(path), "-")
	pid, err := strconv.Atoi(text)
	if err != nil || status.Alive(pid) {
		return errors.New("nothing listens there")
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("the program has ended, and its socket cannot be removed: %w", err)
	}
	return errors.New("the program has ended; its socket was removed")
}

// slow gives a timeout a readable message.
func slow(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return errSlow
	}
	return err
}
