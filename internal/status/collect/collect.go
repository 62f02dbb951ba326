// Package collect asks the programs of a host for the state of their connections. See package
// status for the other half.
package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/status"
)

// Patience is how long Collect waits for programs, all together. Tests replace it.
var Patience = 200 * time.Millisecond

const (
	// maxSockets is how many sockets of one directory are asked, and atATime how many of them
	// concurrently.
	maxSockets = 1024
	atATime    = 16
	// maxUserBytes limits the size of all answers from one directory, and maxAllBytes that of all
	// answers.
	maxUserBytes = 32 << 20
	maxAllBytes  = 128 << 20
)

// A Failure is a socket from which Collect got no state.
type Failure struct {
	Path string
	Err  error
}

func (f Failure) Error() string { return fmt.Sprintf("%s: %v", f.Path, f.Err) }

// Collect asks all programs whose sockets are in the directories. It returns those that
// answered within Patience, by process, and the reasons why others did not. It removes the sockets
// of dead programs. Decoding the answers may take another decodeTime.
func Collect(dirs []string) (programs []status.Program, failures []Failure) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return finish(ctx, start(ctx, dirs))
}

// start begins to ask. ctx has a deadline.
func start(ctx context.Context, dirs []string) []*visit {
	visits := make([]*visit, len(dirs))
	all := newBudget(maxAllBytes)
	for i, path := range dirs {
		visits[i] = &visit{path: path, budgets: budgets{newBudget(maxUserBytes), all}, done: make(chan struct{})}
		go visits[i].run(ctx)
	}
	return visits
}

// finish waits for answers until ctx ends, and decodes them.
func finish(ctx context.Context, visits []*visit) (programs []status.Program, failures []Failure) {
	for _, v := range visits {
		select {
		case <-v.done:
		case <-ctx.Done():
		}
		failures = append(failures, v.end()...)
	}
	programs, failed := decodeAll(inTurns(visits))
	failures = append(failures, failed...)
	slices.SortFunc(programs, func(a, b status.Program) int { return cmp.Compare(a.PID, b.PID) })
	slices.SortFunc(failures, func(a, b Failure) int { return strings.Compare(a.Path, b.Path) })
	return programs, failures
}

// A visit asks the programs whose sockets are in one directory. It has goroutines of its own,
// because programs of one user that hang must not use up the time of another's.
type visit struct {
	path    string
	budgets budgets
	done    chan struct{}

	mu      sync.Mutex
	over    bool // Collect no longer waits
	opened  bool
	failure error // of the directory
	answers []answer
}

// An answer is what a program said.
type answer struct {
	socket socket
	pid    int // 0: unknown
	text   []byte
	err    error
}

func (v *visit) run(ctx context.Context) {
	defer close(v.done)
	err := enter(ctx, v.path, func(d *directory) error {
		names, err := d.list()
		v.begin(d, names)
		places := make(chan struct{}, atATime)
		var all sync.WaitGroup
		for i, name := range names {
			all.Go(func() {
				select {
				case places <- struct{}{}:
				case <-ctx.Done():
					return
				}
				defer func() { <-places }()
				s := socket{d, name}
				text, pid, err := ask(ctx, s, v.budgets)
				v.answer(i, answer{s, pid, text, err})
			})
		}
		all.Wait()
		return err
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return
	}
	v.failure, v.opened = err, true
	if errors.Is(err, os.ErrNotExist) {
		v.failure = nil
	}
}

// begin says which sockets are asked.
func (v *visit) begin(d *directory, names []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return
	}
	v.opened = true
	for _, name := range names {
		v.answers = append(v.answers, answer{socket: socket{d, name}, err: errSlow(Patience)})
	}
}

func (v *visit) answer(i int, a answer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.over {
		v.answers[i] = a
	}
}

// end keeps the answers as they are. It returns why there may be more programs.
func (v *visit) end() []Failure {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = true
	switch {
	case !v.opened:
		return []Failure{{v.path, errHung}}
	case v.failure != nil:
		return []Failure{{v.path, v.failure}}
	}
	return nil
}

// A socket is where a program of the owner of its directory may answer.
type socket struct {
	dir  *directory
	name string
}

func (s socket) path() string { return filepath.Join(s.dir.path, s.name) }

func errSlow(patience time.Duration) error {
	return fmt.Errorf("no answer within %v", patience)
}

// ask returns the document of the program that serves the socket, and its process.
func ask(ctx context.Context, s socket, b budgets) (text []byte, pid int, err error) {
	conn, pid, err := s.dial(ctx, Patience)
	if err != nil {
		return nil, 0, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, status.CommandStatus+"\n"); err != nil {
		return nil, 0, slow(err, Patience)
	}
	text, err = read(conn, b)
	return text, pid, err
}

// read reads a document.
func read(r io.Reader, b budgets) ([]byte, error) {
	metered := &meter{r: r, budgets: b}
	limited := &io.LimitedReader{R: metered, N: status.MaxDocument + 1}
	text, err := io.ReadAll(limited)
	if err == nil && limited.N == 0 {
		err = fmt.Errorf("answer exceeds %d MB", status.MaxDocument>>20)
	}
	if err != nil {
		metered.giveBack()
		return nil, slow(err, Patience)
	}
	return text, nil
}

// A budget is how many bytes answers may still have together.
type budget struct {
	size int64
	left atomic.Int64
}

func newBudget(size int64) *budget {
	b := &budget{size: size}
	b.left.Store(size)
	return b
}

// budgets are those of a user's programs and of all programs.
type budgets [2]*budget

// A meter reads at most what its budgets allow.
type meter struct {
	r       io.Reader
	budgets budgets
	taken   int64
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.r.Read(b)
	m.taken += int64(n)
	for _, b := range slices.Backward(m.budgets[:]) { // a user's own is the better reason
		if b.left.Add(-int64(n)) < 0 {
			err = fmt.Errorf("total size of answers exceeds %d MB", b.size>>20)
		}
	}
	return n, err
}

// giveBack returns what was taken for an answer that is not kept.
func (m *meter) giveBack() {
	for _, b := range m.budgets {
		b.left.Add(m.taken)
	}
}

// dial connects to the program that serves the socket, and returns its process, 0 if that is not
// known. The connection has the deadline of ctx, which was patience away.
func (s socket) dial(ctx context.Context, patience time.Duration) (c *net.UnixConn, pid int, err error) {
	path, release, err := s.dir.find(s.name)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, 0, s.gone()
	}
	if err != nil {
		return nil, 0, slow(err, patience)
	}
	end, _ := ctx.Deadline()
	conn.SetDeadline(end)
	uid, pid, err := status.Peer(conn.(*net.UnixConn))
	if err == nil && uid != s.dir.owner {
		err = fmt.Errorf("served by user %d, but the directory is owned by user %d", uid, s.dir.owner)
	}
	if err != nil {
		conn.Close()
		return nil, 0, err
	}
	return conn.(*net.UnixConn), pid, nil
}

// gone removes the socket of a program that has ended.
func (s socket) gone() error {
	text, _, _ := strings.Cut(s.name, "-")
	pid, err := strconv.Atoi(text)
	if err != nil || status.Alive(pid) {
		return errors.New("connection refused: no program listens")
	}
	if err := s.dir.remove(s.name); err != nil {
		return fmt.Errorf("stale socket, program exited: %w", err)
	}
	return errors.New("program exited, stale socket removed")
}

// slow gives a timeout a readable message.
func slow(err error, patience time.Duration) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return errSlow(patience)
	}
	return err
}
