package adoption

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const costRuns = 60

// TestCostOnPlainConnections prints what the hooks cost on a connection that stays plain TCP, by which
// end has them. On an idle machine this is less than the scatter of the build without hooks.
func TestCostOnPlainConnections(t *testing.T) {
	want(t, "all")
	dir := module(t, map[string]string{"main.go": pingPong})
	run(t, dir, env(), "go", "build", "-o", "without", ".")
	run(t, dir, env(), sdp(t), "build", "-o", "with", ".")
	onOneProcessor(t)
	connections := newReport(t)
	servers := make(map[string]string)
	for _, program := range []string{"without", "with"} {
		server := exec.Command(filepath.Join(dir, program), "serve")
		server.Env = env("SDP_DEVICES=tcp", connections.env())
		servers[program] = startListening(t, server)
	}
	runs := []struct{ name, client, server string }{
		{"without", "without", "without"},
		{"without, again", "without", "without"},
		{"client with", "with", "without"},
		{"server with", "without", "with"},
	}
	times := make(map[string][]float64)
	for range costRuns {
		for _, r := range runs {
			out := run(t, dir, env("SDP_DEVICES=tcp", connections.env()), filepath.Join(dir, r.client), "ping", servers[r.server])
			ns, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
			require.NoError(t, err)
			times[r.name] = append(times[r.name], ns)
		}
	}
	require.Equal(t, costRuns, connections.count(t, "dial", "tcp"), "the connections were not plain")
	require.Equal(t, costRuns, connections.count(t, "accept", "tcp"), "the connections were not plain")
	for _, of := range times {
		slices.Sort(of)
	}
	at := func(name string, part float64) float64 { return times[name][int(part*(costRuns-1))] }
	without := at("without", 0.5)
	scatter := (at("without", 0.75) - at("without", 0.25)) / without
	t.Logf("scatter without hooks %.1f %%", 100*scatter)
	for _, r := range runs {
		difference := at(r.name, 0.5)/without - 1
		t.Logf("%-14s best %.0f ns, quartile %.0f, median %.0f, upper quartile %.0f: %+.1f %%", r.name,
			at(r.name, 0), at(r.name, 0.25), at(r.name, 0.5), at(r.name, 0.75), 100*difference)
	}
}

// onOneProcessor makes the programs that the test starts run on one processor, which scatters less
// than if their threads move about.
func onOneProcessor(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // child processes inherit the thread's processors
	var before, one unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	for i := range 1024 {
		if before.IsSet(i) {
			one.Set(i)
			break
		}
	}
	require.NoError(t, unix.SchedSetaffinity(0, &one))
	t.Cleanup(func() {
		unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	})
}

const pingPong = `package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

func main() {
	if os.Args[1] == "serve" {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Println(ln.Addr())
		for {
			c, err := ln.Accept()
			if err != nil {
				panic(err)
			}
			go func() {
				b := make([]byte, 64)
				for {
					if _, err := io.ReadFull(c, b); err != nil {
						return
					}
					c.Write(b)
				}
			}()
		}
	}
	c, err := net.Dial("tcp", os.Args[2])
	if err != nil {
		panic(err)
	}
	b := make([]byte, 64)
	const trips = 10000
	var began time.Time
	for i := range trips + 1000 {
		if i == 1000 { // warm by then
			began = time.Now()
		}
		c.Write(b)
		if _, err := io.ReadFull(c, b); err != nil {
			panic(err)
		}
	}
	fmt.Println(time.Since(began).Nanoseconds() / trips)
}
`
