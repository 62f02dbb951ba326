//go:build linux

package shm

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// process is a peer's process whose memory this end may read. All links to it share one.
//
// A number alone would not do. Another process of the peer's may keep the channel when this one has
// ended, and the number may then be another's, or this one executes a set-user-ID program. So the
// descriptor says after each reading whether the process has ended, and this process reads without
// CAP_SYS_PTRACE: what it gets, any program of its user could get.
type process struct {
	pid   int
	fd    int  // a pidfd
	ours  bool // it is in this process's pid namespace, which it cannot leave
	links int  // that hold it; guarded by processes.mu
}

// processes has those that links hold, by their numbers.
var processes struct {
	mu    sync.Mutex
	byPID map[int]*process
}

// holdProcess returns the process with this number, as it is now. Whether that is the peer's is known
// when its probe has been read there. The caller releases it. holdProcess fails before Linux 5.3.
func holdProcess(pid int) (*process, error) {
	s := &processes
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.byPID[pid]; p != nil && !p.ended() {
		p.links++
		return p, nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	p := &process{pid: pid, fd: fd, ours: inOurNamespace(pid), links: 1}
	if s.byPID == nil {
		s.byPID = make(map[int]*process)
	}
	s.byPID[pid] = p
	return p, nil
}

// hold is holdProcess for one that the caller holds already.
func (p *process) hold() {
	processes.mu.Lock()
	p.links++
	processes.mu.Unlock()
}

// release is the last thing that a holder does with p, which may be nil.
func (p *process) release() {
	if p == nil {
		return
	}
	s := &processes
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.links--; p.links > 0 {
		return
	}
	unix.Close(p.fd)
	if s.byPID[p.pid] == p {
		delete(s.byPID, p.pid)
	}
}

// ended reports whether the process has ended, so that its number may be another's. An error counts
// as its end.
func (p *process) ended() bool {
	poll := unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN}
	var now unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno != 0 || n > 0
}

// read reads the process's memory at an address. It fails with ESRCH if the process has ended, in
// which case b may have been overwritten.
func (p *process) read(b []byte, from uintptr) (n int, err error) {
	local := [1]unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	remote := [1]unix.RemoteIovec{{Base: from, Len: len(b)}}
	var rights threadRights
	if err := rights.dropTracing(); err != nil {
		return 0, err
	}
	n, err = unix.ProcessVMReadv(p.pid, local[:], remote[:], 0)
	rights.restore()
	switch {
	case p.ended():
		return 0, unix.ESRCH
	case err != nil:
		return 0, err
	}
	return n, nil
}

// threadRights are the capabilities of the thread that this goroutine runs on.
type threadRights struct {
	header  unix.CapUserHeader
	all     [2]unix.CapUserData // the first has those below 32
	dropped bool
}

const tracing = 1 << unix.CAP_SYS_PTRACE

// dropTracing takes CAP_SYS_PTRACE from the thread, if it has that, until the goroutine calls restore.
func (r *threadRights) dropTracing() error {
	r.header.Version = unix.LINUX_CAPABILITY_VERSION_3
	if err := unix.Capget(&r.header, &r.all[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	if r.all[0].Effective&tracing == 0 {
		return nil
	}
	// The runtime starts no thread from one that is locked, so none inherits what this one has.
	runtime.LockOSThread()
	r.all[0].Effective &^= tracing
	if err := unix.Capset(&r.header, &r.all[0]); err != nil {
		runtime.UnlockOSThread()
		return os.NewSyscallError("capset", err)
	}
	r.dropped = true
	return nil
}

func (r *threadRights) restore() {
	if r.dropped {
		r.all[0].Effective |= tracing
		unix.Capset(&r.header, &r.all[0])
		runtime.UnlockOSThread()
	}
}

// reach returns the peer's process if this one may read its memory, and nil otherwise: the kernel must
// name it, and both must have the same user and pid namespace. A process of another user may
// execute a set-user-ID program and keep its number and its sockets. Of a process in another
// namespace, a container's for example, less is known than the number suggests.
func reach(pid, uid int) *process {
	if pid == 0 || uid != os.Geteuid() {
		return nil
	}
	p, err := holdProcess(pid)
	if err != nil {
		return nil
	}
	if !p.ours {
		p.release()
		return nil
	}
	return p
}

// inOurNamespace reports whether a process of this user is in this process's pid namespace.
func inOurNamespace(pid int) bool {
	if pid == os.Getpid() {
		return true
	}
	var theirs unix.Stat_t
	ours := ourNamespace()
	return ours != nil && unix.Stat("/proc/"+strconv.Itoa(pid)+"/ns/pid", &theirs) == nil &&
		ours.Dev == theirs.Dev && ours.Ino == theirs.Ino
}

// ourNamespace identifies this process's pid namespace; nil: unknown.
var ourNamespace = sync.OnceValue(func() *unix.Stat_t {
	s := new(unix.Stat_t)
	if unix.Stat("/proc/self/ns/pid", s) != nil {
		return nil
	}
	return s
})

// find is reach for a process that has the probe at the address. prompt: it fails with rdma.ErrSlow
// instead of waiting for a page of the process's.
func find(pid, uid int, address uint64, want []byte, prompt bool) (*process, error) {
	p := reach(pid, uid)
	if p == nil {
		return nil, nil
	}
	patience := tryTime
	if prompt {
		patience = promptTime
	}
	there, late := p.try(address, want, patience)
	if there {
		return p, nil
	}
	p.release()
	if late && prompt {
		return nil, rdma.ErrSlow
	}
	return nil, nil
}
