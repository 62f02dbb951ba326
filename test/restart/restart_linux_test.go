package restart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/sdp"
)

const roleVariable = "RESTART_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, "server:", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// The descriptors of a server: the test's commands, and what the server before hands over.
const (
	commandFD  = 3
	handoverFD = 4
)

// What a server hands over, each with a descriptor but the end.
const (
	aListener   = 'L'
	aConnection = 'C'
	theEnd      = 'E'
)

// serve echoes what clients send until it hands its sockets over to the next server.
func serve() error {
	s := &server{done: make(chan *sdp.Conn)}
	command, err := unixConn(commandFD)
	if err != nil {
		return err
	}
	if os.Getenv(roleVariable) == "first" {
		s.ln, err = sdp.Listen("tcp", "127.0.0.1:0")
	} else {
		err = s.inherit()
	}
	if err != nil {
		return err
	}
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			c, err := s.ln.Accept()
			if err != nil {
				return
			}
			s.echo(c.(*sdp.Conn))
		}
	}()
	if _, err := command.Write([]byte(s.ln.Addr().String())); err != nil {
		return err
	}
	_, to, err := receive(command)
	if err != nil {
		return err
	}
	s.stopping.Store(true)
	s.ln.(*sdp.Listener).SetDeadline(time.Unix(1, 0))
	<-accepting
	return s.handOver(to)
}

type server struct {
	ln       net.Listener
	stopping atomic.Bool
	mu       sync.Mutex
	conns    []*sdp.Conn
	done     chan *sdp.Conn // connections whose echo has stopped; nil: the client has ended it
}

// echo sends back what arrives, until the client ends the stream or the server stops.
func (s *server) echo(c *sdp.Conn) {
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.mu.Unlock()
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := c.Read(b)
			if n > 0 {
				if _, err := c.Write(b[:n]); err != nil {
					fmt.Fprintln(os.Stderr, "server:", err)
					os.Exit(1)
				}
			}
			switch {
			case err == nil:
			case errors.Is(err, os.ErrDeadlineExceeded) && s.stopping.Load():
				s.done <- c
				return
			default:
				if err != io.EOF {
					fmt.Fprintln(os.Stderr, "server:", err)
					os.Exit(1)
				}
				c.Close()
				s.done <- nil
				return
			}
		}
	}()
}

func (s *server) handOver(to int) error {
	if err := give(to, aListener, s.ln.(*sdp.Listener)); err != nil {
		return err
	}
	for _, c := range s.conns {
		c.SetReadDeadline(time.Unix(1, 0))
	}
	for range s.conns {
		c := <-s.done
		if c == nil {
			continue
		}
		c.SetReadDeadline(time.Time{})
		if err := give(to, aConnection, c); err != nil {
			return err
		}
	}
	return unix.Sendmsg(to, []byte{theEnd}, nil, nil, 0)
}

// give hands a socket over, and closes it here.
func give(to int, what byte, from interface {
	File() (*os.File, error)
	Close() error
}) error {
	f, err := from.File()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Sendmsg(to, []byte{what}, unix.UnixRights(int(f.Fd())), nil, 0); err != nil {
		return err
	}
	return from.Close()
}

// inherit takes over what the server before has.
func (s *server) inherit() error {
	from, err := unixConn(handoverFD)
	if err != nil {
		return err
	}
	for {
		what, fd, err := receive(from)
		if err != nil || what == theEnd {
			return err
		}
		f := os.NewFile(uintptr(fd), "")
		if what == aListener {
			s.ln, err = sdp.FileListener(f)
		} else {
			var c net.Conn
			if c, err = sdp.FileConn(f); err == nil {
				s.echo(c.(*sdp.Conn))
			}
		}
		f.Close()
		if err != nil {
			return err
		}
	}
}

func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// receive returns a byte, and the descriptor that came with it.
func receive(from *net.UnixConn) (what byte, fd int, err error) {
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, k, _, _, err := from.ReadMsgUnix(b, oob)
	switch {
	case err != nil:
		return 0, -1, err
	case n == 0:
		return 0, -1, io.ErrUnexpectedEOF
	case k == 0:
		return b[0], -1, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob[:k])
	if err != nil {
		return 0, -1, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, -1, err
	}
	unix.CloseOnExec(fds[0])
	return b[0], fds[0], nil
}

// process is a server as the test sees it.
type process struct {
	*exec.Cmd
	command *net.UnixConn
	address string
}

// start starts a server. handover is what it takes over from; nil: it is the first one.
func start(t *testing.T, handover *os.File) *process {
	ours, theirs := socketpair(t)
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Stderr = os.Stderr
	p.Env = append(os.Environ(), roleVariable+"=first")
	p.ExtraFiles = []*os.File{theirs}
	if handover != nil {
		p.Env = append(os.Environ(), roleVariable+"=next")
		p.ExtraFiles = append(p.ExtraFiles, handover)
	}
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, p.Start())
	theirs.Close()
	c, err := net.FileConn(ours)
	require.NoError(t, err)
	ours.Close()
	p.command = c.(*net.UnixConn)
	t.Cleanup(func() {
		p.command.Close()
		p.Process.Kill()
		p.Wait()
	})
	return p
}

// up waits until the server serves.
func (p *process) up(t *testing.T) {
	b := make([]byte, 64)
	n, err := p.command.Read(b)
	require.NoError(t, err)
	p.address = string(b[:n])
}

func socketpair(t *testing.T) (a, b *os.File) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	return os.NewFile(uintptr(fds[0]), ""), os.NewFile(uintptr(fds[1]), "")
}

// replace starts the next server, to which this one hands over.
func (p *process) replace(t *testing.T) *process {
	from, to := socketpair(t)
	next := start(t, to)
	to.Close()
	_, _, err := p.command.WriteMsgUnix([]byte("R"), unix.UnixRights(int(from.Fd())), nil)
	require.NoError(t, err)
	from.Close()
	next.up(t)
	assert.NoError(t, p.Wait(), "the server that was replaced")
	return next
}

// period is that of the streams that clients send, a prime, so that pieces of all sizes differ.
const period = 65521

var pattern = func() []byte {
	b := make([]byte, period+1<<20)
	rand.NewChaCha8([32]byte{1}).Read(b[:period])
	for i := period; i < len(b); i++ {
		b[i] = b[i-period]
	}
	return b
}()

// client sends and receives until ctx is done, and then ends the stream. Requests are written and read in turn;
// a stream is written while it is read.
func client(ctx context.Context, address string, seed uint64, streams bool) error {
	c, err := sdp.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	sizes := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, 128<<10)
	read := func(off, n int) error {
		if _, err := io.ReadFull(c, b[:n]); err != nil {
			return fmt.Errorf("at byte %d: %w", off, err)
		}
		if string(b[:n]) != string(pattern[off%period:][:n]) {
			return fmt.Errorf("wrong bytes from byte %d", off)
		}
		return nil
	}
	if !streams {
		for off := 0; ctx.Err() == nil; {
			n := 1 + sizes.IntN(1<<sizes.IntN(15))
			if _, err := c.Write(pattern[off%period:][:n]); err != nil {
				return err
			}
			if err := read(off, n); err != nil {
				return err
			}
			off += n
		}
		return atEnd(c)
	}
	sent := make(chan int, 64)
	failed := make(chan error, 1)
	go func() {
		defer close(sent)
		for off := 0; ctx.Err() == nil; {
			n := 1 + sizes.IntN(len(b))
			if _, err := c.Write(pattern[off%period:][:n]); err != nil {
				failed <- err
				return
			}
			sent <- n
			off += n
		}
		failed <- nil
	}()
	off := 0
	for n := range sent {
		if err := read(off, n); err != nil {
			c.Close() // which ends the Write
			for range sent {
			}
			return err
		}
		off += n
	}
	if err := <-failed; err != nil {
		return err
	}
	return atEnd(c)
}

// atEnd ends the stream, and checks that nothing more comes.
func atEnd(c net.Conn) error {
	if err := c.(*sdp.Conn).CloseWrite(); err != nil {
		return err
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return fmt.Errorf("%d bytes and %v at the end", n, err)
	}
	return nil
}

// TestRestart replaces the server's process while clients are in the middle of requests and streams: no connection
// ends, and no byte is lost.
func TestRestart(t *testing.T) {
	clients, restarts := 200, 20
	if testing.Short() {
		clients, restarts = 40, 5
	}
	ctx, stop := context.WithCancel(t.Context())
	server := start(t, nil)
	server.up(t)
	address := server.address
	ended := make(chan error, clients)
	for i := range clients {
		go func() { ended <- client(ctx, address, uint64(i), i%4 == 0) }()
	}
	for range restarts {
		moved := sdp.Stats().Moves
		server = server.replace(t)
		require.Eventually(t, func() bool { return sdp.Stats().Moves > moved }, time.Minute, time.Millisecond,
			"no connection moves after the restart")
	}
	stop()
	for range clients {
		assert.NoError(t, <-ended)
	}
}
