//go:build linux && cgo

package verbs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// ends are two ends of a channel, of which b exposes a region to a.
type ends struct {
	t      testing.TB
	a, b   *QueuePair
	target []byte
	region rdma.Region
}

func newEnds(t testing.TB, size int) *ends {
	t.Helper()
	x, y := pair(t, hardware(t), config)
	e := &ends{t: t, a: x.(*QueuePair), b: y.(*QueuePair), target: make([]byte, size)}
	t.Cleanup(func() {
		e.a.Close()
		e.b.Close()
	})
	var err error
	e.region, err = e.b.Register(e.target, rdma.RemoteRead|rdma.RemoteWrite)
	must(t, err)
	return e
}

// done waits until the posted work has completed.
func (e *ends) done(posted error) {
	e.t.Helper()
	must(e.t, posted)
	var wcs [1]rdma.Completion
	n, err := e.a.Wait(wcs[:])
	must(e.t, err)
	if n != 1 {
		e.t.Fatal("no completion")
	}
}

func (e *ends) write(b []byte) {
	e.t.Helper()
	for {
		err := e.a.PostWrite(rdma.WriteWR{Local: b, STag: e.region.STag, VA: e.region.VA})
		if err != rdma.ErrNoRoom {
			e.done(err)
			return
		}
		must(e.t, e.a.WaitRoom())
	}
}

// arrived waits until written bytes are in place, which the completion of an RDMA Write does not
// say: a Read is answered after the Write.
func (e *ends) arrived() {
	e.t.Helper()
	e.read(make([]byte, 64))
}

func (e *ends) read(b []byte) {
	e.t.Helper()
	e.done(e.a.PostRead(rdma.ReadWR{Local: b, STag: e.region.STag, VA: e.region.VA}))
}

// Memory that was freed and allocated again is sent with its own contents, whichever pages it has
// now, and however late the cleanups run.
func TestReusedMemory(t *testing.T) {
	const size = 512 << 10
	e := newEnds(t, size)
	where := make(map[uintptr]int)
	for i := range 16 {
		func() {
			b := make([]byte, size)
			where[uintptr(unsafe.Pointer(&b[0]))]++
			rand.NewChaCha8([32]byte{byte(i)}).Read(b)
			e.write(b)
			e.arrived()
			if !bytes.Equal(b, e.target) {
				t.Fatalf("round %d: an RDMA Write has sent other bytes than were in memory", i)
			}
			into := make([]byte, size)
			where[uintptr(unsafe.Pointer(&into[0]))]++
			e.read(into)
			if !bytes.Equal(into, e.target) {
				t.Fatalf("round %d: an RDMA Read has filled other memory than it was to", i)
			}
		}()
		e.a.kept.mu.Lock()
		for _, r := range e.a.kept.kept {
			r.cleanup.Stop()
		}
		e.a.kept.mu.Unlock()
		runtime.GC()
		debug.FreeOSMemory() // so that the next allocation has other pages
	}
	if len(where) == 32 {
		t.Error("no memory was used again")
	}
}

// Memory that is used again and stays alive is registered once. When the connection is idle, it is no
// longer registered, and no longer counts against the limit.
func TestKept(t *testing.T) {
	e := newEnds(t, 1<<20)
	b := make([]byte, 1<<20)
	for range 4 {
		e.write(b)
		e.write(b[4096 : 8192+leastKept])
	}
	if n := len(e.a.kept.kept); n != 1 {
		t.Errorf("%d registrations are kept, of one buffer", n)
	}
	e.a.Shrink()
	kept := func() int {
		e.a.kept.mu.Lock()
		defer e.a.kept.mu.Unlock()
		return len(e.a.kept.kept)
	}
	for begin := time.Now(); kept() > 0; runtime.Gosched() { // the event loop deregisters them
		if time.Since(begin) > patience {
			t.Fatalf("%d registrations are kept when idle", kept())
		}
	}
	e.write(b)
	e.a.Close()
	locked.mu.Lock()
	defer locked.mu.Unlock()
	if locked.kept != 0 {
		t.Errorf("%d bytes are registered of a connection that is closed", locked.kept)
	}
}

// Memory that is not Go's, and memory that cannot be registered at all, can be the source of a Write
// nevertheless.
func TestForeignMemory(t *testing.T) {
	const size = 3<<20 + 17
	e := newEnds(t, size)
	content := make([]byte, size)
	rand.NewChaCha8([32]byte{9}).Read(content)
	f, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer f.Close()
	_, err = f.Write(content)
	must(t, err)
	for name, how := range map[string][2]int{
		"private":           {unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE},
		"private read-only": {unix.PROT_READ, unix.MAP_PRIVATE},
		"shared":            {unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED},
		"shared read-only":  {unix.PROT_READ, unix.MAP_SHARED},
	} {
		t.Run(name, func(t *testing.T) {
			mapped, err := unix.Mmap(int(f.Fd()), 0, size, how[0], how[1])
			must(t, err)
			defer unix.Munmap(mapped)
			clear(e.target)
			e.write(mapped)
			e.arrived()
			if !bytes.Equal(content, e.target) {
				t.Error("other bytes than were in memory")
			}
		})
	}
	clear(e.target)
	e.write(unsafe.Slice(unsafe.StringData(constant), len(constant)))
	e.arrived()
	if string(e.target[:len(constant)]) != constant {
		t.Error("of a constant there are other bytes")
	}
	if n := len(e.a.kept.kept); n != 0 {
		t.Errorf("%d registrations are kept of memory that is not Go's", n)
	}
}

// While registered memory changes, a child process is started, and another is forked that has a copy
// of everything. The device reads the memory of this process.
func TestFork(t *testing.T) {
	const size = 256 << 10
	e := newEnds(t, size)
	b, into := make([]byte, size), make([]byte, size)
	for i := range 8 {
		rand.NewChaCha8([32]byte{byte(i), 1}).Read(b)
		e.write(b)
		e.read(into)
		child := forked()
		rand.NewChaCha8([32]byte{byte(i), 2}).Read(b) // the parent keeps the pages
		clear(into)
		e.write(b)
		e.arrived()
		if !bytes.Equal(b, e.target) {
			t.Fatal("an RDMA Write has sent what was in memory before the fork")
		}
		e.read(into)
		if !bytes.Equal(b, into) {
			t.Fatal("an RDMA Read has filled memory that is the child's")
		}
		must(t, syscall.Kill(child, syscall.SIGKILL))
		_, err := syscall.Wait4(child, nil, 0, nil)
		must(t, err)
	}
}

// forked makes a process that has a copy of this one's memory and does nothing.
func forked() (pid int) {
	r, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		panic(errno)
	}
	for r == 0 { // the child
		syscall.RawSyscall(unix.SYS_PPOLL, 0, 0, 0)
	}
	return int(r)
}

// TestMemoryThatIsNotGivenBack: if the device does not give back memory to which the peer has access,
// the queue pair has ended when Invalidate returns. What is registered stays counted until it is given
// back, or the device is gone.
func TestMemoryThatIsNotGivenBack(t *testing.T) {
	onFake(t, func(f *fake) {
		const size = 1 << 20
		for _, v := range []struct {
			errno syscall.Errno
			ends  bool
		}{{0, false}, {syscall.EBUSY, true}, {syscall.EIO, false}, {syscall.ENODEV, false}} {
			q := f.queuePair()
			before, disconnects := (device{}).Pinned()["fake0"], f.get("disconnects")
			region, err := q.Register(make([]byte, size), rdma.RemoteWrite)
			must(t, err)
			f.set("dereg_errno", int(v.errno))
			q.Invalidate(region.STag)
			kept := int64(0)
			if v.ends {
				kept = size
			}
			if got := (device{}).Pinned()["fake0"] - before; got != kept {
				t.Errorf("%v: %d bytes are counted, want %d", v.errno, got, kept)
			}
			err = q.failed()
			if v.ends != (f.get("disconnects") > disconnects) || v.ends != errors.Is(err, syscall.EBUSY) {
				t.Errorf("%v: %v", v.errno, err)
			}
			f.set("dereg_errno", 0)
			q.Abort()
			if n := (device{}).Pinned()["fake0"]; n != 0 {
				t.Errorf("%v: %d bytes are counted at the end", v.errno, n)
			}
		}
	})
}

// TestSinkThatIsNotGivenBack: the same for memory that was registered for one transfer, to which an
// iWARP peer has access until then.
func TestSinkThatIsNotGivenBack(t *testing.T) {
	onFake(t, func(f *fake) {
		q := f.queuePair()
		defer q.Abort()
		f.set("dereg_errno", int(syscall.EBUSY))
		must(t, q.PostRead(rdma.ReadWR{Local: make([]byte, 100), STag: 1}))
		until(t, "the queue pair goes on", func() bool {
			q.reap()
			return errors.Is(q.failed(), syscall.EBUSY)
		})
	})
}

// BenchmarkTransfer measures RDMA Writes and Reads of one buffer, with its registration kept and
// without.
func BenchmarkTransfer(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		for _, limit := range []int{mostLocked, 0} {
			name := "kept"
			if limit == 0 {
				name = "registered each time"
			}
			b.Run(fmt.Sprintf("%dKB/%s", size>>10, name), func(b *testing.B) {
				locked.limit = limit
				defer func() { locked.limit = mostLocked }()
				e := newEnds(b, size)
				from := make([]byte, size)
				b.SetBytes(int64(size))
				for b.Loop() {
					e.write(from)
				}
			})
		}
	}
}

// BenchmarkRegistration measures what a transfer pays for its memory.
func BenchmarkRegistration(b *testing.B) {
	for _, limit := range []int{mostLocked, 0} {
		name := "kept"
		if limit == 0 {
			name = "registered each time"
		}
		b.Run(name, func(b *testing.B) {
			locked.limit = limit
			defer func() { locked.limit = mostLocked }()
			e := newEnds(b, 1)
			from := make([]byte, 1<<20)
			for b.Loop() {
				r, err := e.a.kept.get(from, source)
				must(b, err)
				r.put()
			}
		})
	}
}
