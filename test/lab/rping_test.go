package lab_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/lab"
)

// TestMain makes a directory for programs that tests build.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		panic(err)
	}
	programs = dir
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

var programs string

// buildRping builds examples/rping and returns its path.
var buildRping = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programs, "rping")
	build := exec.Command("go", "build", "-o", path, "./rping")
	build.Dir = "../../examples"
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building examples/rping: %w\n%s", err, output)
	}
	return path, nil
})

// ourRping is a process that runs examples/rping.
type ourRping struct {
	t      testing.TB
	cmd    *exec.Cmd
	output output
}

// startRping starts examples/rping. It is killed when the test ends.
func startRping(t testing.TB, args ...string) *ourRping {
	t.Helper()
	path, err := buildRping()
	require.NoError(t, err)
	p := &ourRping{t: t, cmd: exec.Command(path, args...), output: output{line: make(chan string, 1)}}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	return p
}

// startServer starts examples/rping as a server and returns its port.
func startServer(t testing.TB, args ...string) (p *ourRping, port string) {
	t.Helper()
	p = startRping(t, append([]string{"-s", "-a", "127.0.0.1", "-p", "0"}, args...)...)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(<-p.output.line, "listening on "))
	require.NoError(t, err)
	return p, port
}

// wait waits until the process has ended, and returns its output.
func (p *ourRping) wait() (string, error) {
	p.t.Helper()
	watch := time.AfterFunc(2*time.Minute, func() { p.cmd.Process.Kill() })
	defer watch.Stop()
	err := p.cmd.Wait()
	return p.output.buf.String(), err
}

// output keeps what is written, and sends the first line to a channel.
type output struct {
	buf  bytes.Buffer
	line chan string
}

func (o *output) Write(b []byte) (int, error) {
	began := bytes.ContainsRune(o.buf.Bytes(), '\n')
	o.buf.Write(b)
	if line, _, ok := strings.Cut(o.buf.String(), "\n"); ok && !began {
		o.line <- line
	}
	return len(b), nil
}

// variants are the modules of siw, and what siw requests as a client with each.
var variants = []struct {
	name string
	asks agreement
}{
	{"siw", agreement{revision: 2, first: "Send"}},
	{"siw-strict", agreement{revision: 2, requestCRC: true, first: "Write"}},
	{"siw-read-rtr", agreement{revision: 2, first: "Read Request"}},
	{"siw-revision1", agreement{revision: 1, first: "Send"}},
}

// port is where programs in the machine listen.
const port = 7174

// TestSiw tests Linux's siw against rdma/iwarp, in one machine.
func TestSiw(t *testing.T) {
	m := lab.Boot(t, lab.Config{Ports: []int{port}})
	m.Siw(t, "siw")
	t.Run("violations", func(t *testing.T) { testViolations(t, m) })
	t.Run("corruption", func(t *testing.T) { testCorruption(t, m) })
	t.Run("memory", func(t *testing.T) { testMemory(t, m) })
	t.Run("sends", func(t *testing.T) { testSends(t, m) })
	t.Run("disconnects", func(t *testing.T) { testDisconnects(t, m) })
	t.Run("rping", func(t *testing.T) { testRping(t, m) })
	t.Run("lab", func(t *testing.T) { testLab(t, m) })
}

// testRping runs rping between siw and examples/rping, and compares every byte.
func testRping(t *testing.T, m *lab.Machine) {
	for _, variant := range variants {
		t.Run(variant.name, func(t *testing.T) {
			m.Siw(t, variant.name)
			for _, crc := range []bool{true, false} {
				t.Run(fmt.Sprintf("client,crc=%t", crc), func(t *testing.T) {
					want := variant.asks
					want.replyCRC = want.requestCRC || crc
					pings := []ping{{rpingMin, 20}, {65535, 20}}
					if variant.name == "siw" && crc {
						pings = append(pings, ping{64, 1000}, ping{4097, 100})
					}
					for _, ping := range pings {
						t.Run(ping.String(), func(t *testing.T) { siwIsClient(t, m, ping, crc, want) })
					}
				})
			}
		})
	}
	loaded := ""
	for _, v := range []struct {
		variant, name string
		args          []string
		want          agreement
	}{
		{"siw", "revision2", nil, agreement{revision: 2, requestCRC: true, replyCRC: true, first: "Send"}},
		{"siw", "revision2,nocrc", []string{"-nocrc"}, agreement{revision: 2, first: "Send"}},
		{"siw", "revision2,rtr", []string{"-rtr"}, agreement{revision: 2, requestCRC: true, replyCRC: true, first: "Write"}},
		{"siw", "revision1", []string{"-mpa", "1"}, agreement{revision: 1, requestCRC: true, replyCRC: true, first: "Send"}},
		{"siw", "revision1,nocrc", []string{"-mpa", "1", "-nocrc"}, agreement{revision: 1, first: "Send"}},
		{"siw-strict", "revision2", nil, agreement{revision: 2, requestCRC: true, replyCRC: true, first: "Send"}},
		{"siw-strict", "revision2,nocrc,rtr", []string{"-nocrc", "-rtr"}, agreement{revision: 2, first: "Write"}},
	} {
		t.Run(v.variant+"/server,"+v.name, func(t *testing.T) {
			if v.variant != loaded {
				m.Siw(t, v.variant)
				loaded = v.variant
			}
			pings := []ping{{1, 20}, {65535, 20}}
			if v.variant == "siw" && v.name == "revision2" {
				pings = append(pings, ping{64, 1000}, ping{4097, 100})
			}
			for _, ping := range pings {
				t.Run(ping.String(), func(t *testing.T) { siwIsServer(t, m, ping, v.args, v.want) })
			}
		})
	}
}

// ping is the size and number of rping's pings.
type ping struct{ size, rounds int }

func (p ping) String() string { return fmt.Sprintf("%dx%d", p.rounds, p.size) }

// rpingMin is the shortest ping that rdma-core's client sends. examples/rping can send one
// byte.
const rpingMin = 26

// separateStderr keeps rping's standard error from interrupting the lines on its standard
// output.
const separateStderr = " 2>/tmp/stderr; status=$?; cat /tmp/stderr; exit $status"

// siwIsClient makes siw's rping ping a server of examples/rping.
func siwIsClient(t *testing.T, m *lab.Machine, ping ping, crc bool, want agreement) {
	var args []string
	if !crc {
		args = append(args, "-nocrc")
	}
	server, at := startServer(t, args...)
	tap := newTap(t, "127.0.0.1:"+at, nil)
	_, through, err := net.SplitHostPort(tap.address)
	require.NoError(t, err)
	client := m.Start(t, fmt.Sprintf("timeout 120 rping -c -a %s -p %s -V -v -C %d -S %d"+separateStderr, lab.Host, through, ping.rounds, ping.size)).Wait()
	output, err := server.wait()
	require.NoError(t, err, "our server: %s", output)
	require.Zero(t, client.Status, client.Output)
	assert.Equal(t, ping.rounds, strings.Count(client.Output, "ping data: rdma-ping-"))
	assert.Equal(t, want, tap.agreement(t))
}

// siwIsServer pings siw's server with examples/rping. With -q, rping's server requests RDMA
// Read resources. Otherwise it gets none with MPA revision 1, which cannot negotiate them.
func siwIsServer(t *testing.T, m *lab.Machine, ping ping, args []string, want agreement) {
	server := m.Start(t, fmt.Sprintf("timeout 120 rping -s -q -a %s -p %d -v -S 65535"+separateStderr, lab.Guest, port))
	m.Listening(t, port)
	tap := newTap(t, m.Address(port), nil)
	_, through, err := net.SplitHostPort(tap.address)
	require.NoError(t, err)
	client := startRping(t, append([]string{"-c", "-a", "127.0.0.1", "-p", through, "-V",
		"-C", fmt.Sprint(ping.rounds), "-S", fmt.Sprint(ping.size)}, args...)...)
	output, err := client.wait()
	if err != nil {
		server.Kill()
	}
	result := server.Wait()
	require.NoError(t, err, "our client: %s\nsiw: %s", output, result.Output)
	require.Contains(t, output, fmt.Sprintf("%d pings of %d bytes, ", ping.rounds, ping.size))
	assert.Equal(t, ping.rounds, strings.Count(result.Output, "server ping data: "))
	assert.Zero(t, result.Status, result.Output)
	assert.Equal(t, want, tap.agreement(t))
}
