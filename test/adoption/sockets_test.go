package adoption

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const sockets = `package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"syscall"
	"time"
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func dial(what, address string, d net.Dialer) {
	c, err := d.Dial("tcp", address)
	if err != nil {
		fmt.Printf("%s: %v, %T\n", what, err.(*net.OpError).Err, err.(*net.OpError).Err)
		return
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	c.Write([]byte("hello"))
	n, err := c.Read(make([]byte, 100))
	fmt.Println(what, c.LocalAddr().(*net.TCPAddr).IP, n, err)
	c.Close()
}

// dials has the program choose the local address, or fail, in its own hook.
func dials(address, local string) {
	from := net.ParseIP(local)
	dial("any", address, net.Dialer{})
	dial("LocalAddr", address, net.Dialer{LocalAddr: &net.TCPAddr{IP: from}})
	dial("bind", address, net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) {
			at := syscall.SockaddrInet4{}
			copy(at.Addr[:], from.To4())
			err = syscall.Bind(int(fd), &at)
		})
		return err
	}})
	dial("errno", address, net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return syscall.EPERM }})
	dial("error", address, net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return os.ErrInvalid }})
	dial("nobody", "127.0.0.1:1", net.Dialer{})
}

// serve echoes on so many connections, and ends without closing ln.
func serve(ln net.Listener, connections int) {
	for range connections {
		c := must(ln.Accept())
		c.SetDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 100)
		n, err := c.Read(b)
		if err != nil || string(b[:n]) != "hello" {
			fmt.Printf("the client never wrote %q: %v\n", b[:n], err)
		}
		c.Write(b[:n])
		c.Read(b) // the end
	}
	os.Exit(0)
}

func main() {
	switch os.Args[1] {
	case "dials":
		dials(os.Args[2], os.Args[3])
	case "serve":
		ln := must(net.Listen("tcp", os.Args[2]))
		fmt.Println(ln.Addr())
		serve(ln, 1000)
	}
}
`

// TestOwnSockets compares what a program gets that chooses the local address of its connections, or
// whose hook fails, with what it gets without SDP.
func TestOwnSockets(t *testing.T) {
	want(t, "short")
	dir := module(t, map[string]string{"main.go": sockets})
	buildFor(t, dir, asIs)
	run(t, dir, env(), "go", "build", "-o", "stock", ".")
	connections := newReport(t)
	server := exec.Command(filepath.Join(dir, "program"), "serve", "127.0.0.1:0")
	server.Env = env()
	address := startListening(t, server)
	expected := run(t, dir, env(), filepath.Join(dir, "stock"), "dials", address, "127.0.0.1")
	require.Equal(t, expected, asIs.run(t, dir, connections, "dials", address, "127.0.0.1"))
	require.Equal(t, 3, connections.count(t, "dial", "tcp"))
}

// startListening starts a process that prints its address, and ends it with the test.
func startListening(t *testing.T, cmd *exec.Cmd) (address string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	address, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(address)
}
