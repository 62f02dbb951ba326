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

// TestRestart has servers replace each other while clients are in the middle of requests and streams. Each hands its listener and
// its connections to the next as files: no connection ends, and no byte is lost.
func TestRestart(t *testing.T) {
	want(t, "short")
	dir := module(t, map[string]string{"main.go": restart})
	buildFor(t, dir, asIs)
	for _, w := range []way{asIs, moving, restless} {
		t.Run(w.name, func(t *testing.T) {
			connections := newReport(t)
			require.Equal(t, "ok\n", w.run(t, dir, connections))
			require.Positive(t, connections.count(t, "dial", "shm"))
			require.Positive(t, connections.count(t, "accept", "shm"))
			require.Positive(t, connections.count(t, "file", "shm"), "none moves after a restart")
		})
	}
}

const restart = `package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	clients  = 8
	restarts = 4
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// The files of a server.
const (
	listener = 3 + iota
	last     // the pipe on which the last server says that it is in charge
	first    // connection
)

// serve echoes on the connections that it has as files, or else on those that it accepts. When it has
// echoed on each of them for a while, it hands all of them to the next server, and ends.
func serve(left, files int) {
	ln := must(net.FileListener(os.NewFile(listener, ""))).(*net.TCPListener)
	var conns []*net.TCPConn
	for i := range files {
		conns = append(conns, must(net.FileConn(os.NewFile(uintptr(first+i), ""))).(*net.TCPConn))
	}
	for len(conns) < clients {
		conns = append(conns, must(ln.AcceptTCP()))
	}
	var stopping atomic.Bool
	var worked, stopped sync.WaitGroup
	for _, c := range conns {
		worked.Add(1)
		stopped.Go(func() {
			b := make([]byte, 16<<10)
			for echoed := 0; ; echoed++ {
				if echoed == 200 {
					worked.Done()
				}
				n, err := c.Read(b)
				must(c.Write(b[:n]))
				switch {
				case err == io.EOF:
					must(0, c.CloseWrite())
					return
				case errors.Is(err, os.ErrDeadlineExceeded) && stopping.Load():
					return
				case err != nil:
					log.Fatal(err)
				}
			}
		})
	}
	worked.Wait()
	pipe := os.NewFile(last, "")
	if left == 0 {
		must(pipe.Write([]byte("x")))
		stopped.Wait()
		return
	}
	stopping.Store(true)
	for _, c := range conns {
		c.SetReadDeadline(time.Unix(1, 0))
	}
	stopped.Wait()
	handed := []*os.File{must(ln.File()), pipe}
	for _, c := range conns {
		handed = append(handed, must(c.File()))
		must(0, c.Close())
	}
	start(left-1, handed)
}

func start(left int, files []*os.File) {
	cmd := exec.Command(os.Args[0], strconv.Itoa(left), strconv.Itoa(len(files)-(first-listener)))
	cmd.ExtraFiles, cmd.Stderr = files, os.Stderr
	must(0, cmd.Start())
}

// pattern is what clients send. Its length is a prime, so that pieces of all sizes differ.
var pattern = func() []byte {
	b := make([]byte, 65521)
	for i := range b {
		b[i] = byte(i ^ i>>8*7)
	}
	return bytes.Repeat(b, 2)
}()

// talk says something and hears it, until the last server is in charge. With streams it does not wait for
// what it hears.
func talk(c *net.TCPConn, size int, streams bool, stop *atomic.Bool) {
	const period = 65521
	said := make(chan int)
	go func() {
		defer close(said)
		for off := 0; !stop.Load(); off += size {
			must(c.Write(pattern[off%period:][:size]))
			if !streams {
				said <- off
			}
		}
		must(0, c.CloseWrite())
	}()
	got := make([]byte, size)
	for off := 0; ; off += size {
		if !streams {
			if _, more := <-said; !more {
				break
			}
		}
		if _, err := io.ReadFull(c, got); err == io.EOF && streams {
			break
		} else if err != nil {
			log.Fatal("at byte ", off, ": ", err)
		}
		if !bytes.Equal(got, pattern[off%period:][:size]) {
			log.Fatal("wrong bytes from byte ", off)
		}
	}
	if n, err := c.Read(got); n != 0 || err != io.EOF {
		log.Fatal(n, " bytes at the end: ", err)
	}
}

func main() {
	if len(os.Args) > 1 {
		serve(must(strconv.Atoi(os.Args[1])), must(strconv.Atoi(os.Args[2])))
		return
	}
	ln := must(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	r, w := must2(os.Pipe())
	start(restarts, []*os.File{must(ln.File()), w})
	var stop atomic.Bool
	var all sync.WaitGroup
	for i := range clients {
		c := must(net.DialTCP("tcp", nil, ln.Addr().(*net.TCPAddr)))
		c.SetDeadline(time.Now().Add(5 * time.Minute))
		all.Go(func() { talk(c, 100+i*i*1000, i%4 == 0, &stop) })
	}
	must(io.ReadFull(r, make([]byte, 1)))
	stop.Store(true)
	all.Wait()
	fmt.Println("ok")
}

func must2[T any](a, b T, err error) (T, T) { return must(a, err), b }
`

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
