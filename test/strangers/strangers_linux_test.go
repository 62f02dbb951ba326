package strangers

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gosdp/gosdp/sdp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a server that prints its log.
type server struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	log  bytes.Buffer
	done chan struct{}
}

func (s *server) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

// start runs a server until the test ends.
func start(t *testing.T, cmd *exec.Cmd) *server {
	t.Helper()
	s := &server{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = s, s
	require.NoError(t, cmd.Start())
	go func() {
		defer close(s.done)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-s.done
	})
	return s
}

// takeLog returns what the server has logged since the last call.
func (s *server) takeLog() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.log.String()
	s.log.Reset()
	return text
}

// changing is what differs between connections.
var changing = regexp.MustCompile(`\d+`)

// freePort returns an unused port of the loopback interface.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	return port
}

// tool returns the path of a program, or skips the test.
func tool(t *testing.T, path, pkg string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Skipf("missing: %s (package %s)", path, pkg)
	}
	if os.Getuid() != 0 {
		t.Skip("missing: root, which this server needs")
	}
	return path
}

// compare compares the sessions and the logs of dials by package net and one by SDP. The server's last
// line about a session ends with last.
func compare(t *testing.T, s *server, address, last string, session func(t *testing.T, c net.Conn) string) {
	t.Helper()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		session(t, c)
		return true
	}, time.Minute, 50*time.Millisecond)
	logged(t, s, last)
	var sessions, logs []string
	for _, dial := range []func(network, address string) (net.Conn, error){net.Dial, sdp.Dial, net.Dial} {
		c, err := dial("tcp", address)
		require.NoError(t, err)
		sessions = append(sessions, session(t, c))
		logs = append(logs, logged(t, s, last))
	}
	t.Logf("the server logs %q", logs[0])
	assert.Equal(t, sessions[0], sessions[1])
	assert.Equal(t, logs[0], logs[1])
	assert.Equal(t, logs[0], logs[2], "nothing is left of the session before")
}

// logged returns what the server logs until a line ends with last, with all numbers replaced.
func logged(t *testing.T, s *server, last string) (text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		text += s.takeLog()
		return strings.HasSuffix(strings.TrimSpace(text), last)
	}, time.Minute, 5*time.Millisecond, "the server logs %s", last)
	return changing.ReplaceAllString(text, "#")
}

// TestSSH tests a server that sends first, and logs it if the client's first line is not SSH.
func TestSSH(t *testing.T) {
	sshd := tool(t, "/usr/sbin/sshd", "openssh-server")
	dir, port := t.TempDir(), freePort(t)
	key := filepath.Join(dir, "key")
	out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.MkdirAll("/run/sshd", 0o755))
	s := start(t, exec.Command(sshd, "-D", "-e", "-f", "/dev/null", "-h", key, "-p", port,
		"-o", "ListenAddress=127.0.0.1", "-o", "LogLevel=VERBOSE", "-o", "PidFile=none", "-o", "UsePAM=no"))
	compare(t, s, "127.0.0.1:"+port, "[preauth]", func(t *testing.T, c net.Conn) string {
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		r := bufio.NewReader(c)
		banner, err := r.ReadString('\n')
		assert.True(t, strings.HasPrefix(banner, "SSH-2.0-"), "%q", banner)
		fmt.Fprintf(c, "SSH-2.0-stranger\r\n")
		assert.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
		io.Copy(io.Discard, r) // a close with unread bytes might reset the connection
		return fmt.Sprint(banner, err)
	})
}

// TestExim tests a mail server that rejects clients that send before its greeting.
func TestExim(t *testing.T) {
	exim := tool(t, "/usr/sbin/exim4", "exim4-daemon-light")
	port := freePort(t)
	dir, err := os.MkdirTemp("", "strangers") // accessible to the server's user
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	spool, file := filepath.Join(dir, "spool"), filepath.Join(dir, "exim.conf")
	require.NoError(t, os.MkdirAll(spool, 0o777))
	require.NoError(t, os.Chmod(spool, 0o777))
	// The greeting is delayed, as servers do to detect clients that do not wait.
	require.NoError(t, os.WriteFile(file, []byte(`
primary_hostname = localhost
spool_directory = `+spool+`
log_file_path = `+dir+`/%slog
log_selector = +all
smtp_enforce_sync = true
acl_smtp_connect = greeting
begin acl
greeting:
  accept delay = 1s
`), 0o644))
	s := start(t, exec.Command(exim, "-bdf", "-oX", "127.0.0.1."+port, "-oP", filepath.Join(dir, "pid"), "-C", file))
	logged := func() string {
		var all []byte
		for _, name := range []string{"mainlog", "rejectlog", "paniclog"} {
			b, _ := os.ReadFile(filepath.Join(dir, name))
			all = append(all, b...)
		}
		return string(all)
	}
	seen := 0
	tail := make(chan struct{})
	defer func() { <-tail }()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // exim logs to files, so copy them
		defer close(tail)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if all := logged(); len(all) > seen {
				io.WriteString(s, all[seen:])
				seen = len(all)
			}
		}
	}()
	compare(t, s, "127.0.0.1:"+port, "C=QUIT", func(t *testing.T, c net.Conn) string {
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		r := bufio.NewReader(c)
		greeting, err := r.ReadString('\n')
		assert.True(t, strings.HasPrefix(greeting, "220 "), "%q", greeting)
		fmt.Fprintf(c, "QUIT\r\n")
		bye, _ := r.ReadString('\n')
		return fmt.Sprint(changing.ReplaceAllString(greeting, "#"), err, bye)
	})
}
