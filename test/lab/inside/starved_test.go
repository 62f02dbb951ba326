//go:build linux

package inside

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

const (
	// stormVariable has how long each storm of TestStarvedDials lasts.
	stormVariable = "VERBS_STORM"
	// starvedVariable makes the test binary the server, or a client that dials the address.
	starvedVariable = "VERBS_STARVED"
)

// TestStarvedDials: clients dial a server on network tcp, exchange a few bytes and close, while the
// processes are stopped again and again, for longer than most timeouts of the set-up, or the processors
// are busy. Over TCP that delays connections, and no more. So no Dial fails, and no connection is lost.
// At the end nothing is left: no memory that is pinned, no goroutine and no descriptor. It runs only if
// VERBS_STORM is set, and alone.
func TestStarvedDials(t *testing.T) {
	switch role := os.Getenv(starvedVariable); role {
	case "":
	case "server":
		serveStarved(t)
		return
	default:
		dialStarved(t, role)
		return
	}
	lasts, err := time.ParseDuration(os.Getenv(stormVariable))
	if err != nil {
		t.Skip("missing: " + stormVariable + ", how long the storms last")
	}
	for _, storm := range []struct {
		name              string
		long              bool // only if storms are long
		server, clients   bool // which are stopped
		busy              int  // processes
		shortest, longest time.Duration
	}{
		{"the server is stopped", false, true, false, 0, 2100 * time.Millisecond, 2600 * time.Millisecond},
		{"all are stopped", true, true, true, 0, 50 * time.Millisecond, 3 * time.Second},
		{"the clients are stopped, on a busy machine", true, false, true, 3, 50 * time.Millisecond, 3 * time.Second},
	} {
		if storm.long && lasts < 20*time.Second {
			continue
		}
		t.Run(storm.name, func(t *testing.T) {
			server := startStarved(t, "server")
			at := server.line(t)
			clients := []*starved{startStarved(t, at), startStarved(t, at)}
			for _, c := range clients {
				c.line(t) // it dials from now on
			}
			for range storm.busy {
				busy := exec.Command("sh", "-c", "while :; do :; done")
				require.NoError(t, busy.Start())
				defer busy.Wait()
				defer busy.Process.Kill()
			}
			var stopping sync.WaitGroup
			time.Sleep(500 * time.Millisecond) // meanwhile there are connections over verbs
			over := time.Now().Add(lasts)
			stop := func(p *starved) {
				stopping.Go(func() {
					for time.Now().Before(over) {
						time.Sleep(rand.N(400 * time.Millisecond))
						assert.NoError(t, p.command.Process.Signal(syscall.SIGSTOP))
						time.Sleep(storm.shortest + rand.N(storm.longest-storm.shortest))
						assert.NoError(t, p.command.Process.Signal(syscall.SIGCONT))
					}
				})
			}
			if storm.server {
				stop(server)
			}
			for _, c := range clients {
				if storm.clients {
					stop(c)
				}
			}
			time.Sleep(time.Until(over))
			stopping.Wait()
			for _, c := range clients {
				t.Logf("client: %v", c.report(t).Devices)
			}
			r := server.report(t)
			t.Logf("server: %v", r.Devices)
			assert.NotZero(t, r.Devices["verbs"], "connections over verbs")
		})
	}
}

// starved is a process.
type starved struct {
	command *exec.Cmd
	in      io.Closer
	out     *json.Decoder
}

// starvedReport is what such a process has seen.
type starvedReport struct {
	Devices  map[string]int // how many connections each has carried
	Failures []string
	Left     string // what has not been given back

	mu sync.Mutex
}

func (r *starvedReport) failed(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

func (r *starvedReport) carried(c net.Conn) {
	device := "tcp"
	if s, ok := c.(*sdp.Conn); ok {
		device = s.Device()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Devices[device]++
}

func startStarved(t *testing.T, role string) *starved {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run", "^TestStarvedDials$")
	command.Env = append(os.Environ(), starvedVariable+"="+role)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	require.NoError(t, err)
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		command.Process.Kill()
		_ = command.Wait() // ignore "signal: killed"
	})
	return &starved{command, in, json.NewDecoder(out)}
}

// line returns what the process says when it is ready.
func (p *starved) line(t *testing.T) (text string) {
	t.Helper()
	require.NoError(t, p.out.Decode(&text))
	return text
}

// report ends the process, and returns what it has seen. There must be nothing to complain about.
func (p *starved) report(t *testing.T) *starvedReport {
	t.Helper()
	r := new(starvedReport)
	require.NoError(t, p.in.Close())
	require.NoError(t, p.out.Decode(r))
	assert.Empty(t, r.Failures)
	assert.Empty(t, r.Left)
	return r
}

// starvedConfig has timeouts of the set-up that are shorter than a process may be stopped, but not too
// short for an emulated processor.
var starvedConfig = &sdp.Config{Devices: []string{"verbs"}, Probe: everyone, StepUpTimeout: 2 * time.Second, ReplyTimeout: 5 * time.Second}

// starvedPatience is how long a connection may take on a machine like this.
const starvedPatience = 100 * time.Second

// serveStarved returns what each client sends.
func serveStarved(t *testing.T) {
	before := inUse(t)
	r := starvedReport{Devices: map[string]int{}}
	ln, err := (&sdp.ListenConfig{Config: starvedConfig}).Listen(context.Background(), "tcp", address(t))
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				r.failed("Accept: %v", err)
				return
			}
			serving.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(starvedPatience))
				said, err := io.ReadAll(c)
				if len(said) == 0 && (err == nil || errors.Is(err, syscall.ECONNRESET)) {
					return // the client did not wait for an answer to its Plain, and has dialled again
				}
				if err == nil {
					_, err = c.Write(said)
				}
				if err != nil {
					r.failed("%d bytes: %v", len(said), err)
				}
				r.carried(c)
			})
		}
	})
	json.NewEncoder(os.Stdout).Encode(ln.Addr().String())
	io.Copy(io.Discard, os.Stdin)
	ln.Close()
	serving.Wait()
	r.Left = before.left(t)
	json.NewEncoder(os.Stdout).Encode(&r)
}

// dialStarved dials, and compares what comes back, until it is told to end.
func dialStarved(t *testing.T, at string) {
	before := inUse(t)
	r := starvedReport{Devices: map[string]int{}}
	var over atomic.Bool
	var dialling sync.WaitGroup
	for i := range uint64(8) {
		dialling.Go(func() {
			rng := rand.New(rand.NewPCG(i, uint64(os.Getpid())))
			for !over.Load() {
				said := make([]byte, 1+rng.IntN(40_000))
				for n := range len(said) / 8 {
					binary.LittleEndian.PutUint64(said[8*n:], rng.Uint64())
				}
				c, err := (&sdp.Dialer{Config: starvedConfig}).Dial("tcp", at)
				if err != nil {
					r.failed("%v", err)
					continue
				}
				c.SetDeadline(time.Now().Add(starvedPatience))
				if _, err = c.Write(said); err == nil {
					err = c.(interface{ CloseWrite() error }).CloseWrite()
				}
				if err != nil {
					r.failed("%v", err)
				}
				if heard, err := io.ReadAll(c); err != nil {
					r.failed("%d of %d bytes: %v", len(heard), len(said), err)
				} else if !bytes.Equal(said, heard) {
					r.failed("%d of %d bytes, or others", len(heard), len(said))
				}
				c.Close()
				r.carried(c)
			}
		})
	}
	json.NewEncoder(os.Stdout).Encode("")
	io.Copy(io.Discard, os.Stdin)
	over.Store(true)
	dialling.Wait()
	r.Left = before.left(t)
	json.NewEncoder(os.Stdout).Encode(&r)
}

// resources are what connections use.
type resources struct{ pinned, goroutines, descriptors int }

// inUse returns what this process uses after a connection to itself: a device stays open.
func inUse(t *testing.T) resources {
	t.Helper()
	client, server, err := dialled(t, onVerbs)
	require.NoError(t, err)
	server.Close()
	client.Close()
	require.NoError(t, sdp.WaitClosed(t.Context()))
	last := resources{}
	for range 100 {
		time.Sleep(20 * time.Millisecond)
		now := resourcesNow(t)
		if now == last && now.pinned == 0 {
			break
		}
		last = now
	}
	return last
}

func resourcesNow(t *testing.T) resources {
	t.Helper()
	pinned, _ := memoryOf(t)
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return resources{pinned, runtime.NumGoroutine(), len(files)}
}

// left waits until this process uses no more than before. It returns "", or what is left.
func (before resources) left(t *testing.T) string {
	t.Helper()
	var now resources
	for range 200 {
		now = resourcesNow(t)
		if now.pinned <= before.pinned && now.goroutines <= before.goroutines && now.descriptors <= before.descriptors {
			return ""
		}
		time.Sleep(100 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	return fmt.Sprintf("%+v, and before %+v\n%s", now, before, stacks[:runtime.Stack(stacks, true)])
}
