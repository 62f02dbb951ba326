//go:build linux && cgo

package verbs

import (
	"bufio"
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// fakeVariable is set in a process that has the libraries of testdata/fake.c. Its value is the
// descriptor over which they take orders.
const fakeVariable = "VERBS_FAKE"

// fake is the libraries of testdata/fake.c.
type fake struct {
	t       *testing.T
	mu      sync.Mutex
	orders  *os.File
	answers *bufio.Reader
}

// onFake calls f in a process of its own that has the libraries of testdata/fake.c instead of
// libibverbs and librdmacm.
func onFake(t *testing.T, f func(*fake)) {
	t.Helper()
	if os.Getenv(fakeVariable) != "" {
		f(newFake(t))
		return
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=3m")
	command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+buildFake(t), fakeVariable+"=-1",
		"GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")) // otherwise it ends a second later
	command.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	command.WaitDelay = time.Second
	output, err := command.CombinedOutput()
	if t.Log(string(output)); err != nil {
		t.Fatal(err)
	}
}

// fakeDir has the libraries once builtFake was called. TestMain removes it.
var fakeDir string

// builtFake compiles the libraries once.
var builtFake = sync.OnceValue(func() (err error) {
	if fakeDir, err = os.MkdirTemp("", "gosdp-fake"); err != nil {
		return err
	}
	library := filepath.Join(fakeDir, "libibverbs.so.1")
	compiler := compiler()
	args := append(compiler[1:], "-shared", "-fPIC", "-pthread", "-I.", "-Wl,--version-script=testdata/fake.map", "-o", library, "testdata/fake.c")
	output, err := exec.Command(compiler[0], args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	// Two names of one file are one library with one state.
	return os.Symlink(library, filepath.Join(fakeDir, "librdmacm.so.1"))
})

func compiler() []string { return strings.Fields(cmp.Or(os.Getenv("CC"), "cc")) }

// buildFake returns the directory of the libraries.
func buildFake(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath(compiler()[0]); err != nil {
		t.Skip("missing: a C compiler: ", err)
	}
	must(t, builtFake())
	return fakeDir
}

func TestMain(m *testing.M) {
	code := m.Run()
	if fakeDir != "" {
		os.RemoveAll(fakeDir)
	}
	os.Exit(code)
}

// newFake loads the libraries into this process.
func newFake(t *testing.T) *fake {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Setenv(fakeVariable, strconv.Itoa(ends[1]))
	must(t, load())
	orders := os.NewFile(uintptr(ends[0]), "orders")
	return &fake{t: t, orders: orders, answers: bufio.NewReader(orders)}
}

// order gives an order, and returns the answer; see obey in testdata/fake.c.
func (f *fake) order(order, word string, number int) string {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintln(f.orders, order, word, number)
	answer, err := f.answers.ReadString('\n')
	must(f.t, err)
	return strings.TrimSuffix(answer, "\n")
}

func (f *fake) set(name string, value int) {
	f.t.Helper()
	f.order("set", name, value)
}

func (f *fake) get(name string) int {
	f.t.Helper()
	n, err := strconv.Atoi(f.order("get", name, 0))
	must(f.t, err)
	return n
}

// queuePair returns a queue pair that is connected to nothing.
func (f *fake) queuePair() *QueuePair {
	f.t.Helper()
	e, err := acquire()
	must(f.t, err)
	f.t.Cleanup(e.release)
	id, err := e.newID()
	must(f.t, err)
	must(f.t, id.bind(netip.AddrPortFrom(here, 0)))
	q, err := newQueuePair(id, rdma.ChannelConfig{IRD: 16, Buffers: 16, BufSize: 2048})
	must(f.t, err)
	q.ord = 1
	return q
}

// until waits until done returns true.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}
