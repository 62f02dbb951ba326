//go:build unix

package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// greets starts a server that says the word and closes.
func greets(t *testing.T, word string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, word)
			c.Close()
		}
	}()
	return l.Addr().String()
}

func greeting(t *testing.T, address string) string {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, patience)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(got)
}

// listeningAt returns the address in the line that says what is relayed.
func listeningAt(line string) string {
	_, rest, _ := strings.Cut(line, "://")
	address, _, _ := strings.Cut(rest, " ")
	return address
}

func TestProxyReloadsItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relays.conf")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("tcp://127.0.0.1:0 tcp://" + greets(t, "one") + "\n")
	p := startTool(t, toolCommand(t, "proxy", "-config", file))
	address := listeningAt(p.line(t, "relaying from"))
	require.Equal(t, "one", greeting(t, address))

	write("# a comment\n\ntcp://127.0.0.1:0 tcp://no port\n")
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	require.Contains(t, p.line(t, "configuration reload failed, the old one stays in effect"), file+":3: ")
	require.Equal(t, "one", greeting(t, address))

	write("tcp://127.0.0.1:0 tcp://" + greets(t, "two") + "\n")
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	p.line(t, "configuration reloaded")
	require.Equal(t, "two", greeting(t, address))

	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.status(t))
}

// TestProxyRefusesAFIFO has the file replaced by a FIFO, which nobody writes to. The proxy still obeys
// signals.
func TestProxyRefusesAFIFO(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relays.conf")
	require.NoError(t, os.WriteFile(file, []byte("tcp://127.0.0.1:0 tcp://"+greets(t, "one")+"\n"), 0o600))
	p := startTool(t, toolCommand(t, "proxy", "-config", file))
	address := listeningAt(p.line(t, "relaying from"))
	require.NoError(t, os.Remove(file))
	require.NoError(t, unix.Mkfifo(file, 0o600))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	require.Contains(t, p.line(t, "configuration reload failed, the old one stays in effect"), file+": not a regular file")
	require.Equal(t, "one", greeting(t, address))
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.status(t))
}

func TestProxyChecksItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relays.conf")
	require.NoError(t, os.WriteFile(file, []byte("tcp://:1 tcp://a:1\nnonsense\n"), 0o600))
	out, err := toolCommand(t, "proxy", "-check", "-config", file).CombinedOutput()
	require.ErrorContains(t, err, "exit status 1")
	require.Contains(t, string(out), file+":2: ")
	require.NoError(t, os.WriteFile(file, []byte("tcp://:1 tcp://localhost:2\ntcp://:2 tcp://127.0.0.1:1\n"), 0o600))
	out, err = toolCommand(t, "proxy", "-check", "-config", file).CombinedOutput()
	require.ErrorContains(t, err, "exit status 1")
	require.Contains(t, string(out), file+":1: routes lead in a circle")
	for _, args := range [][]string{{}, {"-listen", "tcp://:1"}, {"-listen", "a", "-dial", "b"}, {"more"}, {"-no-such"},
		{"-check", "-listen", "tcp://:5000", "-dial", "tcp://a:1", "-listen", "auto://:5000", "-dial", "tcp://a:2"},
		{"-check", "-http", "nonsense", "-listen", "tcp://:5000", "-dial", "tcp://a:1"},
	} {
		out, err := toolCommand(t, append([]string{"proxy"}, args...)...).CombinedOutput()
		require.ErrorContains(t, err, "exit status 2", "%v", args)
		require.Contains(t, string(out), "sdp proxy: ", "%v", args)
	}
}

// TestProxyTakesSystemdsSocket passes a socket and a notification socket, as systemd does.
func TestProxyTakesSystemdsSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	require.NoError(t, err)
	defer f.Close()
	dir, err := os.MkdirTemp("", "sdp") // t.TempDir's names are too long for a socket
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	states, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: dir + "/notify"})
	require.NoError(t, err)
	defer states.Close()
	require.NoError(t, states.SetDeadline(time.Now().Add(patience)))
	state := func() string {
		var b [100]byte
		n, err := states.Read(b[:])
		require.NoError(t, err)
		return string(b[:n])
	}

	cmd := toolCommand(t, "proxy", "-listen", "tcp://@web", "-dial", "tcp://"+greets(t, "word"))
	// The process's own number is known only when it is there.
	cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh"}, cmd.Args...)
	cmd.Path = "/bin/sh"
	cmd.ExtraFiles = []*os.File{f}
	cmd.Env = append(cmd.Env, "LISTEN_FDS=1", "LISTEN_FDNAMES=web", "NOTIFY_SOCKET="+dir+"/notify")
	p := startTool(t, cmd)
	require.Equal(t, "READY=1", state())
	require.NoError(t, l.Close())
	require.Equal(t, "word", greeting(t, l.Addr().String()))
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "STOPPING=1", state())
	require.Zero(t, p.status(t))
}

// TestProxyWithoutDescriptors has more clients than the proxy has descriptors, once with the
// default limit of connections and once with one that the descriptors do not suffice for. A
// connection that is relayed goes on, and new ones come through when there is room again.
func TestProxyWithoutDescriptors(t *testing.T) {
	for name, limit := range map[string]string{"default": "0", "too many": "1000"} {
		t.Run(name, func(t *testing.T) { withoutDescriptors(t, limit) })
	}
}

func withoutDescriptors(t *testing.T, limit string) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); io.Copy(c, c) }()
		}
	}()
	cmd := toolCommand(t, "proxy", "-limit", limit, "-listen", "tcp://127.0.0.1:0", "-dial", "tcp://"+server.Addr().String())
	cmd.Args = append([]string{"sh", "-c", `ulimit -n 100; exec "$@"`, "sh"}, cmd.Args...)
	cmd.Path = "/bin/sh"
	p := startTool(t, cmd)
	address := listeningAt(p.line(t, "relaying from"))
	echo := func(c net.Conn) {
		t.Helper()
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		_, err := io.WriteString(c, "hello")
		require.NoError(t, err)
		got := make([]byte, 5)
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
	}
	connect := func() net.Conn {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	healthy := connect()
	echo(healthy)
	many := make([]net.Conn, 200)
	for i := range many {
		many[i] = connect()
	}
	if limit != "0" {
		p.line(t, "accept failed")
	}
	echo(healthy)
	for _, c := range many {
		c.Close()
	}
	echo(healthy)
	echo(connect())
}
