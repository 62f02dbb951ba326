package adoption

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOffByEnvironment(t *testing.T) {
	want(t, "all")
	dir, connections := echoModule(t, nil), newReport(t)
	buildFor(t, dir, asTCP)
	require.Contains(t, run(t, dir, env("SDP_DEVICES=tcp", atOnce, connections.env()), "./program"), "echoed")
	require.Zero(t, connections.count(t, "dial", "shm"))
	out, err := try(t, dir, env("SDP_DEVICES=nonsense"), filepath.Join(dir, "program"))
	require.Error(t, err)
	require.Contains(t, out, `SDP_DEVICES=nonsense: unknown device "nonsense"`)
}

// Types, addresses and errors are those of package net.
func TestGenuine(t *testing.T) {
	want(t, "all")
	dir := module(t, map[string]string{"main.go": genuine})
	ways := []way{asTCP, asIs, moving, restless, iwarp}
	buildFor(t, dir, ways...)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			connections := newReport(t)
			require.Equal(t, "ok\n", w.run(t, dir, connections))
			require.Positive(t, connections.count(t, "accept", w.device))
		})
	}
}

const genuine = `package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(ok bool, what ...any) {
	if !ok {
		panic(fmt.Sprint(what...))
	}
}

func pair() (*net.TCPConn, *net.TCPConn) {
	ln := must(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	defer ln.Close()
	dialled := make(chan *net.TCPConn)
	go func() { dialled <- must(net.DialTCP("tcp", nil, ln.Addr().(*net.TCPAddr))) }()
	a := must(ln.AcceptTCP())
	b := <-dialled
	for range 50 { // until they have moved
		must(a.Write([]byte("again")))
		must(io.ReadFull(b, make([]byte, 5)))
		must(b.Write([]byte("again")))
		must(io.ReadFull(a, make([]byte, 5)))
	}
	return b, a
}

func main() {
	a, b := pair()
	check(a.LocalAddr().String() == b.RemoteAddr().String(), "addresses")
	check(a.SetNoDelay(true) == nil && a.SetKeepAlive(true) == nil && a.SetLinger(-1) == nil, "options")
	check(a.SetReadBuffer(1<<16) == nil && a.SetWriteBuffer(1<<16) == nil, "buffers")
	check(a.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Minute}) == nil, "keepalive")

	// Deadlines.
	b.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := b.Read(make([]byte, 1))
	var op *net.OpError
	check(errors.As(err, &op) && op.Op == "read" && op.Net == "tcp" && op.Timeout() && errors.Is(err, os.ErrDeadlineExceeded), err)
	check(strings.HasPrefix(err.Error(), "read tcp 127.0.0.1:"), err)
	_, err = b.WriteTo(struct{ io.Writer }{io.Discard})
	check(errors.As(err, &op) && op.Op == "writeto" && errors.As(op.Err, &op) && op.Op == "read" && op.Net == "tcp" && op.Timeout(), err)
	b.SetReadDeadline(time.Time{})
	a.SetWriteDeadline(time.Unix(1, 0))
	_, err = a.ReadFrom(struct{ io.Reader }{strings.NewReader("x")})
	check(errors.As(err, &op) && op.Op == "readfrom" && errors.As(op.Err, &op) && op.Op == "write" && op.Source.String() == a.LocalAddr().String(), err)
	a.SetWriteDeadline(time.Time{})

	// The option of a socket through its descriptor.
	raw := must(a.SyscallConn())
	noDelay := 0
	check(raw.Control(func(fd uintptr) { noDelay, _ = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_NODELAY) }) == nil && noDelay == 1, "control")

	// Several slices, and copies from and to files.
	v := net.Buffers{[]byte("one"), []byte("two")}
	must(v.WriteTo(a))
	got := make([]byte, 6)
	must(io.ReadFull(b, got))
	check(string(got) == "onetwo", string(got))
	f := must(os.CreateTemp("", "sdp"))
	defer os.Remove(f.Name())
	text := strings.Repeat("file", 100000)
	must(f.WriteString(text))
	must(f.Seek(0, 0))
	go func() {
		must(io.Copy(a, f))
		a.CloseWrite()
	}()
	g := must(os.CreateTemp("", "sdp"))
	defer os.Remove(g.Name())
	must(io.Copy(g, b))
	check(string(must(os.ReadFile(g.Name()))) == text, "file")

	// A relay between two connections.
	c, d := pair()
	go func() {
		must(io.Copy(c, a)) // what b says
		c.CloseWrite()
	}()
	must(b.Write([]byte(text)))
	b.CloseWrite()
	check(string(must(io.ReadAll(d))) == text, "relay")

	// A relay that does not flush its buffer.
	c, d = pair()
	e, onward := pair()
	go io.Copy(bufio.NewWriter(e), d)
	must(c.Write([]byte("hello")))
	must(io.ReadFull(onward, got[:5]))
	check(string(got[:5]) == "hello", string(got))

	// The same to a connection of plain TCP, in two parts.
	ctx := context.WithValue(context.Background(), struct{ GosdpUnhooked struct{} }{}, true)
	pln := must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"))
	p := must(new(net.Dialer).DialContext(ctx, "tcp", pln.Addr().String()))
	q := must(pln.Accept())
	c, d = pair()
	go func() {
		must(io.Copy(p, io.LimitReader(d, 1000)))
		must(io.Copy(p, d))
		p.(*net.TCPConn).CloseWrite()
	}()
	must(c.Write([]byte(text)))
	c.CloseWrite()
	check(string(must(io.ReadAll(q))) == text, "relay to TCP")

	// After Close.
	check(a.Close() == nil, "close")
	_, err = a.Write([]byte("x"))
	check(errors.Is(err, net.ErrClosed) && strings.Contains(err.Error(), "use of closed network connection"), err)
	check(errors.Is(a.Close(), net.ErrClosed), "closed twice")
	check(errors.Is(a.SetNoDelay(true), net.ErrClosed) && errors.Is(a.SetLinger(1), net.ErrClosed), "options after Close")
	check(errors.Is(raw.Control(func(uintptr) {}), net.ErrClosed), "control after Close")
	done := func(uintptr) bool { return true }
	check(errors.Is(raw.Read(done), net.ErrClosed) && errors.Is(raw.Write(done), net.ErrClosed), "raw after Close")
	_, err = a.File()
	check(errors.As(err, &op) && op.Op == "file" && errors.Is(err, net.ErrClosed), "file after Close: ", err)

	// Nobody listens.
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	ln.Close()
	_, err = ln.Accept()
	check(errors.Is(err, net.ErrClosed), err)
	_, err = net.Dial("tcp", ln.Addr().String())
	check(errors.Is(err, syscall.ECONNREFUSED), err)
	check(strings.HasPrefix(err.Error(), "dial tcp 127.0.0.1:") && strings.HasSuffix(err.Error(), "connect: connection refused"), err)

	// A connection that is dropped is closed, but not while it is read.
	e, h := pair()
	read := make(chan error)
	go func(c net.Conn) {
		_, err := c.Read(make([]byte, 1))
		read <- err
	}(e)
	e = nil
	for range 5 {
		ended := make(chan bool)
		runtime.AddCleanup(new([64]byte), func(int) { close(ended) }, 0)
		runtime.GC()
		<-ended // and so have cleanups of other garbage begun
	}
	must(h.Write([]byte("x")))
	check(<-read == nil, "collected while it was read")
	for {
		runtime.GC()
		h.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := h.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			check(err == io.EOF || errors.Is(err, syscall.ECONNRESET), err)
			break
		}
	}
	fmt.Println("ok")
}
`

// What was written before os.Exit arrives.
func TestExit(t *testing.T) {
	want(t, "all")
	dir := module(t, map[string]string{"main.go": `package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
)

func main() {
	line := bytes.Repeat([]byte("x"), 99)
	if len(os.Args) > 1 {
		c, err := net.Dial("tcp", os.Args[1])
		if err != nil {
			panic(err)
		}
		for range 10000 {
			fmt.Fprintf(c, "%s\n", line)
		}
		os.Exit(0)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	for range 5 {
		cmd := exec.Command(os.Args[0], ln.Addr().String())
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		c, err := ln.Accept()
		if err != nil {
			panic(err)
		}
		b, err := io.ReadAll(c)
		fmt.Println(len(b), err)
		cmd.Wait()
	}
}
`})
	buildFor(t, dir, asIs, iwarp)
	for _, w := range []way{asIs, moving, iwarp} {
		t.Run(w.name, func(t *testing.T) {
			connections := newReport(t)
			require.Equal(t, strings.Repeat("1000000 <nil>\n", 5), w.run(t, dir, connections))
			require.Equal(t, 5, connections.count(t, "dial", w.device))
		})
	}
}

// A process that exits is gone, as over TCP, before its goroutines see connections closed.
func TestExitWakesNobody(t *testing.T) {
	want(t, "short")
	dir := module(t, map[string]string{"main.go": `package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

var calls = map[string]func(c *net.TCPConn) error{
	"Read":     func(c *net.TCPConn) error { _, err := c.Read(make([]byte, 1)); return err },
	"WriteTo":  func(c *net.TCPConn) error { _, err := c.WriteTo(struct{ io.Writer }{io.Discard}); return err },
	"ReadFrom": func(c *net.TCPConn) error { _, err := c.ReadFrom(zeros{}); return err },
	"Write": func(c *net.TCPConn) error {
		for {
			if _, err := c.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
	},
	"Buffers": func(c *net.TCPConn) error {
		for {
			if _, err := (&net.Buffers{make([]byte, 1<<20)}).WriteTo(c); err != nil {
				return err
			}
		}
	},
	"RawConn": func(c *net.TCPConn) error {
		return must(c.SyscallConn()).Read(func(fd uintptr) bool {
			_, err := syscall.Read(int(fd), make([]byte, 1))
			return err != syscall.EAGAIN
		})
	},
	"Close": func(c *net.TCPConn) error { // the first one of a connection
		c.Read(make([]byte, 1))
		return c.Close()
	},
	"SetDeadline": func(c *net.TCPConn) error {
		for {
			if err := c.SetDeadline(time.Time{}); err != nil {
				return err
			}
		}
	},
}

// calling returns how many goroutines are in a call.
func calling() (n int) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, s := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(s, "net.(*") && strings.Contains(s, "main.main.func2") {
			n++
		}
	}
	return n
}

func main() {
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	for range 4 {
		dialled := make(chan net.Conn)
		go func() { dialled <- must(net.Dial("tcp", ln.Addr().String())) }()
		for _, c := range []net.Conn{must(ln.Accept()), <-dialled} {
			go func() { panic(fmt.Sprint("returned: ", calls[os.Args[1]](c.(*net.TCPConn)))) }()
		}
	}
	for calling() < 8 {
		runtime.Gosched()
	}
}
`})
	for _, w := range []way{asIs, iwarp} {
		buildFor(t, dir, w)
		for _, call := range []string{"Read", "WriteTo", "ReadFrom", "Write", "Buffers", "RawConn", "Close", "SetDeadline"} {
			t.Run(w.name+"/"+call, func(t *testing.T) {
				connections := newReport(t)
				require.Empty(t, w.run(t, dir, connections, call))
				require.Equal(t, 4, connections.count(t, "dial", w.device))
			})
		}
	}
}

// A program that imports package sdp itself works, in all combinations.
func TestProgramWithTheLibrary(t *testing.T) {
	want(t, "all")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := module(t, map[string]string{
		"go.mod": "module example.com/program\n\ngo 1.25\n\nrequire github.com/gosdp/gosdp v0.0.0\n\nrequire golang.org/x/sys v0.47.0 // indirect\n\nreplace github.com/gosdp/gosdp => " + root + "\n",
		"main.go": `package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/gosdp/gosdp/sdp"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// limited hides what is in it, as netutil.LimitListener does.
type limited struct{ net.Listener }

func (l limited) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return struct{ net.Conn }{c}, err
}

func main() {
	listeners := map[string]net.Listener{
		"net.Listen":                   must(net.Listen("tcp", "127.0.0.1:0")),
		"sdp.Listen":                   must(sdp.Listen("tcp", "127.0.0.1:0")),
		"sdp.NewListener":              must(sdp.NewListener(must(net.Listen("tcp", "127.0.0.1:0")), nil)),
		"sdp.NewListener of a wrapper": must(sdp.NewListener(limited{must(net.Listen("tcp", "127.0.0.1:0"))}, nil)),
		"sdp.Server":                   serving{must(net.Listen("tcp", "127.0.0.1:0"))},
	}
	dials := map[string]func(address string) (net.Conn, error){
		"net.Dial": func(a string) (net.Conn, error) { return net.Dial("tcp", a) },
		"sdp.Dial": func(a string) (net.Conn, error) { return sdp.Dial("tcp", a) },
	}
	for name, ln := range listeners {
		go func() {
			for {
				c := must(ln.Accept())
				go func() {
					c.Write([]byte("hello ")) // before the client has said anything
					io.Copy(c, c)
					c.Close()
				}()
			}
		}()
		for how, dial := range dials {
			c := must(dial(ln.Addr().String()))
			must(io.ReadFull(c, make([]byte, len("hello "))))
			for range 50 {
				must(c.Write([]byte("again")))
				must(io.ReadFull(c, make([]byte, 5)))
			}
			must(c.Write([]byte("echoed")))
			must(c, c.(interface{ CloseWrite() error }).CloseWrite())
			if got := must(io.ReadAll(c)); string(got) != "echoed" {
				panic(name + ", " + how + ": " + string(got))
			}
		}
	}
	c := must(net.Dial("tcp", listeners["net.Listen"].Addr().String()))
	_, err := sdp.Client(context.Background(), c, nil)
	var op *net.OpError
	if !errors.As(err, &op) {
		panic(err)
	}
	fmt.Println(err)
}

type serving struct{ net.Listener }

func (l serving) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return sdp.Server(context.Background(), c, nil)
}
`})
	run(t, dir, env("GOFLAGS=-mod=mod"), sdp(t), "build", "-o", "program", ".")
	connections := newReport(t)
	out := run(t, dir, env(atOnce, connections.env()), filepath.Join(dir, "program"))
	require.Contains(t, out, "SDP already negotiated by package net")
	require.Positive(t, connections.count(t, "dial", "shm"))
}
