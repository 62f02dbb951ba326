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
	// program are read, and maxSockets how many sockets of one directory are asked.
	maxDocument = 8 << 20
	maxConns    = 20_000
	maxSockets  = 1024
	// atATime is how many sockets of one directory are asked concurrently.
	atATime = 16
	// maxText bounds a name or a reason, because a table is as wide as its longest one.
	maxText = 256
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
	defer func() {
		for _, s := range sockets {
			s.dir.Close()
		}
	}()
	type answer struct {
		socket  int
		program status.Program
		err     error
	}
	answers := make(chan answer, len(sockets)) // so that one that comes too late blocks nothing
	// Programs of one user that hang must not use up the time of another's.
	places := make(map[*os.Root]chan struct{})
	for i, s := range sockets {
		if places[s.dir] == nil {
			places[s.dir] = make(chan struct{}, atATime)
		}
		place := places[s.dir]
		go func() {
			select {
			case place <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-place }()
			p, err := ask(ctx, s)
			answers <- answer{i, p, err}
		}()
	}
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
	dir   *os.Root
	owner int
}

func find(dirs []string) (sockets []socket, failures []Failure) {
	for _, path := range dirs {
		dir, owner, err := open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var names []string
		if err == nil {
			names, err = list(dir)
		}
		if err != nil {
			failures = append(failures, Failure{path, err})
		}
		for _, name := range names {
			sockets = append(sockets, socket{filepath.Join(path, name), dir, owner})
		}
		if len(names) == 0 && dir != nil {
			dir.Close()
		}
	}
	return sockets, failures
}

// list returns the names in a directory, and an error if there are more than maxSockets.
func list(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxSockets + 1)
	switch {
	case err != nil && err != io.EOF:
		return nil, err
	case len(names) > maxSockets:
		return names[:maxSockets], fmt.Errorf("more than %d sockets", maxSockets)
	}
	return names, nil
}

var errSlow = fmt.Errorf("the program did not answer within %v", Patience)

// open opens a directory in which only one user can have made sockets, and returns that
// user. The user may put a link in its place at any time, so what is removed is removed from
// the directory that was checked, and not from what has its name then.
func open(path string) (dir *os.Root, owner int, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, 0, err
	}
	owner, _ = status.Owner(info)
	if err := status.Private(path, owner); err != nil {
		return nil, 0, err
	}
	if dir, err = os.OpenRoot(path); err != nil {
		return nil, 0, err
	}
	if opened, err := dir.Stat("."); err != nil || !os.SameFile(info, opened) {
		dir.Close()
		return nil, 0, fmt.Errorf("%s was replaced while it was opened", path)
	}
	return dir, owner, nil
}

// ask returns the state of the program that serves the socket.
func ask(ctx context.Context, s socket) (status.Program, error) {
	conn, pid, err := s.dial(ctx)
	if err != nil {
		return status.Program{}, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, status.CommandStatus+"\n"); err != nil {
		return status.Program{}, slow(err)
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
	p.UID = s.owner
	return p, nil
}

// dial connects to the program that serves the socket, and returns its process, 0 if that is not
// known. The connection has the deadline of ctx.
func (s socket) dial(ctx context.Context) (c *net.UnixConn, pid int, err error) {
	info, err := s.dir.Lstat(filepath.Base(s.path))
	if err != nil {
		return nil, 0, err
	}
	if info.Mode().Type() != os.ModeSocket {
		return nil, 0, errors.New("not a socket")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.path)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, 0, s.gone()
	}
	if err != nil {
		return nil, 0, slow(err)
	}
	end, _ := ctx.Deadline()
	conn.SetDeadline(end)
	uid, pid, err := status.Peer(conn.(*net.UnixConn))
	if err == nil && uid != s.owner {
		err = fmt.Errorf("served by the user %d, in a directory of the user %d", uid, s.owner)
	}
	if err != nil {
		conn.Close()
		return nil, 0, err
	}
	return conn.(*net.UnixConn), pid, nil
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
	if p.Version != status.Version {
		return status.Program{}, fmt.Errorf("its version is %d, and this tool reads %d", p.Version, status.Version)
	}
	p.Name = short(p.Name)
	p.Program.Conns = status.Conns(p.Conns)
	return p.Program, nil
}

// short returns the beginning of a long text.
func short(text string) string { return text[:min(len(text), maxText)] }

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
		for _, text := range []*string{&one.Local, &one.Remote, &one.Device, &one.Mode} {
			*text = short(*text)
		}
		for device, why := range one.Declined {
			one.Declined[device] = short(why)
		}
		*c = append(*c, one)
	}
	return nil
}

// gone removes the socket of a program that has ended.
func (s socket) gone() error {
	name := filepath.Base(s.path)
	text, _, _ := strings.Cut(name, "-")
	pid, err := strconv.Atoi(text)
	if err != nil || status.Alive(pid) {
		return errors.New("nothing listens there")
	}
	if err := s.dir.Remove(name); err != nil {
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
