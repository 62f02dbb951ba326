package adoption

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
