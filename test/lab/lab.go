// Package lab runs tests in the RDMA lab: a virtual machine whose Linux kernel has the
// two software RDMA devices, siw (iWARP) and rxe (RoCE). It needs no hardware and no KVM,
// and no privileges after set-up. It boots in a few seconds.
//
// setup.sh sets the lab up, and run.sh boots it for one script. [Boot] is for a test that
// runs many scripts in one machine:
//
//	machine := lab.Boot(t, lab.Config{Ports: []int{7174}})
//	machine.Siw(t, "siw")
//	server := machine.Start(t, "rping -s -C 10")
//	machine.Listening(t, 7174)
//	... connect to machine.Address(7174) ...
//	result := server.Wait()
//
// Tests are skipped unless the environment variable GOSDP_LAB contains the lab's directory,
// as set by make lab. If it is set, the lab must work.
package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gosdp/gosdp/test/lab/group"
)

const (
	// Host is the test machine's loopback, as seen inside the lab.
	Host = "10.0.2.2"
	// Guest is the address of the RDMA devices, as seen inside the lab.
	Guest = "10.0.2.15"
)

// Config configures the machine. The zero value means 2 GB of memory, two processors, and no
// forwarded ports.
type Config struct {
	Ports   []int  // TCP ports of the machine to forward; see Address
	Memory  string // for example "4G"
	CPUs    int
	Link    *Link  // a network link to another machine; nil means none
	Capture string // a pcap file for the packets of the link; "" means none
}

// Link is a network link between the two machines that are booted with it, one after the
// other. It is interface eth1 in both, which is down at first.
type Link struct{ port int }

// end returns run.sh's LINK for the next machine.
func (l *Link) end(t testing.TB) string {
	if l.port != 0 {
		return fmt.Sprintf("connect=127.0.0.1:%d", l.port)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close() // QEMU uses the port a moment later
	l.port = listener.Addr().(*net.TCPAddr).Port
	return fmt.Sprintf("listen=127.0.0.1:%d", l.port)
}

// Machine is a running lab. Its methods are safe for concurrent use.
type Machine struct {
	share   string // the directory that is mounted at /mnt/host
	ports   map[int]int
	console console
	agent   *rpc.Client
}

//go:embed setup.sh
var setup []byte

//go:embed run.sh
var run []byte

// Limits for the time until the machine runs commands, and until it has stopped.
const (
	bootTime = 2 * time.Minute
	haltTime = time.Minute
)

// Boot boots the lab. It runs until the test ends. If the test fails, the console's output is
// logged.
func Boot(t testing.TB, cfg Config) *Machine {
	t.Helper()
	dir := os.Getenv("GOSDP_LAB")
	if dir == "" {
		t.Skip("missing: the RDMA lab, GOSDP_LAB is not set; make lab sets the lab up (on Debian, as root or with sudo) and runs this test")
	}
	key, err := os.ReadFile(filepath.Join(dir, "key"))
	if sum := sha256.Sum256(setup); err != nil || strings.TrimSpace(string(key)) != hex.EncodeToString(sum[:]) {
		t.Fatalf("the lab in %s is missing or was made by another setup.sh; run make lab", dir)
	}
	m := &Machine{share: t.TempDir(), ports: make(map[int]int)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	forward := m.forward(t, cfg.Ports)

	build := exec.Command("go", "build", "-o", filepath.Join(m.share, "agent"), "github.com/gosdp/gosdp/test/lab/agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, output)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec ./agent %s:%d\n", Host, listener.Addr().(*net.TCPAddr).Port)
	must(t, os.WriteFile(filepath.Join(m.share, "agent.sh"), []byte(script), 0o755))
	must(t, os.WriteFile(filepath.Join(m.share, "run.sh"), run, 0o755))

	ctx, ended := context.WithCancelCause(context.Background())
	qemu := exec.Command(filepath.Join(m.share, "run.sh"), filepath.Join(m.share, "agent.sh"))
	qemu.Env = append(os.Environ(), "SHARE="+m.share, "FORWARD="+forward, "TIMEOUT=3600")
	if cfg.Memory != "" {
		qemu.Env = append(qemu.Env, "MEMORY="+cfg.Memory)
	}
	if cfg.CPUs != 0 {
		qemu.Env = append(qemu.Env, "CPUS="+strconv.Itoa(cfg.CPUs))
	}
	if cfg.Link != nil {
		qemu.Env = append(qemu.Env, "LINK="+cfg.Link.end(t), "CAPTURE="+cfg.Capture)
	}
	qemu.Stdout, qemu.Stderr = &m.console, &m.console
	group.Own(qemu)
	must(t, qemu.Start())
	go func() {
		ended(errors.Join(errors.New("virtual machine stopped"), qemu.Wait()))
		listener.Close()
	}()
	t.Cleanup(func() {
		if m.agent == nil {
			_ = group.Kill(qemu)
		} else {
			m.agent.Close() // ends the agent, and with it the machine
			select {
			case <-ctx.Done():
			case <-time.After(haltTime):
				t.Errorf("the lab did not halt within %v", haltTime)
				_ = group.Kill(qemu)
			}
		}
		<-ctx.Done()
		if t.Failed() {
			t.Logf("the console:\n%s", m.console.String())
		}
	})
	must(t, listener.(*net.TCPListener).SetDeadline(time.Now().Add(bootTime)))
	conn, err := listener.Accept()
	if err != nil {
		t.Fatalf("the lab did not boot: %v", errors.Join(err, context.Cause(ctx)))
	}
	m.agent = rpc.NewClient(conn)
	return m
}

// forward chooses a local port for each forwarded port, and returns run.sh's FORWARD.
func (m *Machine) forward(t testing.TB, ports []int) string {
	t.Helper()
	var pairs []string
	for _, port := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer listener.Close() // QEMU uses the port a moment later
		m.ports[port] = listener.Addr().(*net.TCPAddr).Port
		pairs = append(pairs, fmt.Sprintf("%d:%d", m.ports[port], port))
	}
	return strings.Join(pairs, " ")
}

// Address returns the local address that leads to one of Config.Ports in the machine.
func (m *Machine) Address(port int) string {
	return fmt.Sprintf("127.0.0.1:%d", m.ports[port])
}

// Command is a started script.
type Command struct {
	t  testing.TB
	m  *Machine
	id int
}

// Result is how a script ended.
type Result struct {
	Output string // standard output and standard error interleaved
	Status int    // -1 means that a signal ended it
}

// Start starts a bash script in the machine, in /mnt/host, where Copy puts files. The script
// is killed when the test ends.
func (m *Machine) Start(t testing.TB, script string) *Command {
	t.Helper()
	c := &Command{t: t, m: m}
	must(t, m.agent.Call("Agent.Start", script, &c.id))
	t.Cleanup(c.Kill)
	return c
}

// Wait waits until the script, and the processes that it started, have ended.
func (c *Command) Wait() Result {
	c.t.Helper()
	var result Result
	must(c.t, c.m.agent.Call("Agent.Wait", c.id, &result))
	return result
}

// Kill kills the script and the processes that it started, unless it has ended.
func (c *Command) Kill() {
	_ = c.m.agent.Call("Agent.Kill", c.id, nil) // fails if the script has ended
}

// Run runs a bash script in the machine and returns its output. The test fails if the script
// fails.
func (m *Machine) Run(t testing.TB, script string) string {
	t.Helper()
	result := m.Start(t, script).Wait()
	if result.Status != 0 {
		t.Fatalf("%s: status %d\n%s", script, result.Status, result.Output)
	}
	return result.Output
}

// Siw replaces the loaded variant of siw by another (see setup.sh), and makes the device siw0
// at Guest.
func (m *Machine) Siw(t testing.TB, variant string) {
	t.Helper()
	m.Run(t, "siw "+variant)
}

// Listening waits until a program in the machine listens at a TCP port.
func (m *Machine) Listening(t testing.TB, port int) {
	t.Helper()
	m.Run(t, fmt.Sprintf(`
		for i in {1..1000}; do
			grep -qsE '^ *[0-9]+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A' /proc/net/tcp /proc/net/tcp6 && exit
			sleep 0.01
		done
		echo no listener; exit 1`, port))
}

var library = regexp.MustCompile(`/\S+`)

// Copy copies a program to /mnt/host, with the shared libraries that it links and the lab
// lacks. It does not copy libraries that the program opens with dlopen. Of these the lab has
// libibverbs and librdmacm.
func (m *Machine) Copy(t testing.TB, program string) {
	t.Helper()
	m.copy(t, program, ".")
	links, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil {
		return // a statically linked program, or a script
	}
	for _, path := range library.FindAllString(string(links), -1) {
		m.copy(t, path, "lib")
	}
	m.Run(t, "cp -n lib/* /usr/lib/x86_64-linux-gnu/ && chmod +x "+filepath.Base(program))
}

func (m *Machine) copy(t testing.TB, path, dir string) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(m.share, dir), 0o755))
	must(t, os.WriteFile(filepath.Join(m.share, dir, filepath.Base(path)), content, 0o755))
}

// console keeps the output of the machine's console.
type console struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(b)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
