package adoption

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// socketModule builds a program that uses sockets in its own way, as "program", and as "stock" without
// SDP.
func socketModule(t *testing.T) string {
	t.Helper()
	dir := module(t, map[string]string{"main.go": sockets})
	run(t, dir, env(), sdp(t), "build", "-o", "program", ".")
	run(t, dir, env(), "go", "build", "-o", "stock", ".")
	return dir
}

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
	case "inherit": // the listening socket
		ln := must(net.FileListener(os.NewFile(3, "listener")))
		fmt.Println("ready")
		serve(ln, 1)
	case "dial":
		dial("dial", os.Args[2], net.Dialer{})
	}
}
`

// TestOwnSockets compares what a program gets that chooses the local address of its connections, or
// whose hook fails, with what it gets without SDP.
func TestOwnSockets(t *testing.T) {
	want(t, "short")
	dir := socketModule(t)
	connections := newReport(t)
	server := exec.Command(filepath.Join(dir, "program"), "serve", "127.0.0.1:0")
	server.Env = env("SDP_DEVICES=shm")
	address := startListening(t, server)
	expected := run(t, dir, env(), filepath.Join(dir, "stock"), "dials", address, "127.0.0.1")
	require.Equal(t, expected, runProgram(t, dir, "shm", connections, "dials", address, "127.0.0.1"))
	require.Positive(t, connections.count(t, "dial", "shm"))
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

// TestSwitchedOffAfterRestart has processes accept one after the other from a socket that their
// supervisor holds. The first one serves SDP, and ends without closing its listener. The next one has
// SDP switched off, and must not get a Request as data.
func TestSwitchedOffAfterRestart(t *testing.T) {
	want(t, "short")
	dir := socketModule(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	require.NoError(t, err)
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, devices := range []string{"shm", "tcp", "shm"} {
		server := exec.CommandContext(ctx, filepath.Join(dir, "program"), "inherit")
		server.Env, server.ExtraFiles = env("SDP_DEVICES="+devices), []*os.File{f}
		out, err := server.StdoutPipe()
		require.NoError(t, err)
		server.Stderr = os.Stderr
		require.NoError(t, server.Start())
		said := bufio.NewReader(out)
		ready, err := said.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "ready\n", ready)
		require.Equal(t, "dial 127.0.0.1 5 <nil>\n", runProgram(t, dir, "shm", newReport(t), "dial", ln.Addr().String()), devices)
		wrong, err := io.ReadAll(said)
		require.NoError(t, err)
		require.Empty(t, string(wrong), devices)
		require.NoError(t, server.Wait())
	}
}

// TestLocalAddressBetweenContainers has the program choose the local address of connections to another
// network namespace, where a server is announced in a directory.
func TestLocalAddressBetweenContainers(t *testing.T) {
	want(t, "short")
	if os.Getuid() != 0 {
		t.Skip("missing: root, which makes network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("missing: ip")
	}
	dir := socketModule(t)
	shared := t.TempDir()
	require.NoError(t, os.Chmod(shared, 0o700))
	ip := func(args ...string) { t.Helper(); run(t, dir, env(), "ip", args...) }
	server, client := fmt.Sprintf("gosdp-s%d", os.Getpid()), fmt.Sprintf("gosdp-c%d", os.Getpid())
	for _, ns := range []string{server, client} {
		ip("netns", "add", ns)
		defer ip("netns", "del", ns)
		ip("-n", ns, "link", "set", "lo", "up")
	}
	ip("link", "add", "gosdp-a", "netns", server, "type", "veth", "peer", "name", "gosdp-b", "netns", client)
	ip("-n", server, "addr", "add", "192.0.2.1/24", "dev", "gosdp-a")
	ip("-n", client, "addr", "add", "192.0.2.2/24", "dev", "gosdp-b")
	ip("-n", server, "link", "set", "gosdp-a", "up")
	ip("-n", client, "link", "set", "gosdp-b", "up")
	serve := exec.Command("ip", "netns", "exec", server, filepath.Join(dir, "program"), "serve", "192.0.2.1:7777")
	serve.Env = env("SDP_DEVICES=shm", "SDP_SHM_DIR="+shared)
	startListening(t, serve)
	dials := func(program string, environ ...string) string {
		return run(t, dir, env(environ...), "ip", "netns", "exec", client, filepath.Join(dir, program), "dials", "192.0.2.1:7777", "192.0.2.2")
	}
	connections := newReport(t)
	require.Equal(t, dials("stock"), dials("program", "SDP_DEVICES=shm", "SDP_SHM_DIR="+shared, connections.env()))
	require.NotZero(t, connections.count(t, "dial", "shm"))
}
