package adoption

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const costRuns = 60

// The hooks cost nothing that can be measured on a connection that stays plain TCP: the
// difference of the medians is below 1 %, or below the scatter of the build without hooks.
func TestCostOnPlainConnections(t *testing.T) {
	want(t, "all")
	dir := module(t, map[string]string{"main.go": pingPong})
	run(t, dir, env(), "go", "build", "-o", "without", ".")
	run(t, dir, env(), "go", "build", "-o", "server", ".")
	run(t, dir, env(), sdp(t), "build", "-o", "with", ".")
	address := free(t)
	start(t, env(), filepath.Join(dir, "server"), "serve", address)
	await(t, address)
	connections := newReport(t)
	times := make(map[string][]float64)
	for range costRuns {
		for _, program := range []string{"without", "with", "without again"} {
			name, _, _ := strings.Cut(program, " ")
			out := run(t, dir, env(connections.env()), filepath.Join(dir, name), "ping", address)
			ns, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
			require.NoError(t, err)
			times[program] = append(times[program], ns)
		}
	}
	require.Equal(t, costRuns, connections.count(t, "dial", "tcp"), "the connections were not plain")
	for _, of := range times {
		slices.Sort(of)
	}
	at := func(program string, part float64) float64 { return times[program][int(part*(costRuns-1))] }
	for _, program := range []string{"without", "without again", "with"} {
		t.Logf("%-14s best %.0f ns, quartile %.0f, median %.0f, upper quartile %.0f", program,
			at(program, 0), at(program, 0.25), at(program, 0.5), at(program, 0.75))
	}
	difference := at("with", 0.5)/at("without", 0.5) - 1
	scatter := (at("without", 0.75) - at("without", 0.25)) / at("without", 0.5)
	t.Logf("difference of the medians %+.1f %%, scatter without hooks %.1f %%", 100*difference, 100*scatter)
	require.Less(t, difference, max(0.01, scatter))
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
		ln, err := net.Listen("tcp", os.Args[2])
		if err != nil {
			panic(err)
		}
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
