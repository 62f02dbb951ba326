package faults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/sdp"
)

// killedBy makes the kernel end this process, with all its threads, when it makes the given
// system call.
func killedBy(number uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}

// runSandboxed serves, dials or reads memory, with the default configuration, in a process
// that the kernel ends if it calls process_vm_readv.
func runSandboxed(what, address string) {
	if err := killedBy(unix.SYS_PROCESS_VM_READV); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	switch what {
	case "peek":
		fmt.Println("sandboxed")
		var b [1]byte
		local := []unix.Iovec{{Base: &b[0], Len: 1}}
		unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&b)), Len: 1}}, 0)
		fmt.Println("still alive")
	case "serve":
		serveDefault(address)
	case "dial":
		fmt.Println("sandboxed")
		fmt.Println(requests(address, 20, 1<<20))
	}
}

// unhurried and listenUnhurried use the default configuration, except for time limits that a
// busy machine does not reach.
func unhurried() *sdp.Dialer { return &sdp.Dialer{Config: unhurriedConfig} }

func listenUnhurried(network, address string) (net.Listener, error) {
	return (&sdp.ListenConfig{Config: unhurriedConfig}).Listen(context.Background(), network, address)
}

var unhurriedConfig = &sdp.Config{ReplyTimeout: time.Minute, HandshakeTimeout: time.Minute, StepUpTimeout: time.Minute}

// serveDefault listens with the default configuration, prints its address, and echoes.
func serveDefault(address string) {
	ln, err := listenUnhurried("tcp", address)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(ln.Addr())
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				continue
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
}

// device returns the device of a connection.
func device(c net.Conn) string {
	if c, ok := c.(*sdp.Conn); ok {
		return c.Device()
	}
	return "tcp"
}

// requests sends buffers of the given size one after another and compares the echoes. It
// returns the connection's device, or an error's text.
func requests(address string, times, size int) string {
	c, err := unhurried().Dial("tcp", address)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	b, got := bytes.Repeat([]byte{7}, size), make([]byte, size)
	for range times {
		wrote := make(chan error, 1)
		go func() {
			_, err := c.Write(b)
			wrote <- err
		}()
		if _, err := io.ReadFull(c, got); err != nil {
			return err.Error()
		}
		if err := <-wrote; err != nil {
			return err.Error()
		}
		if !bytes.Equal(b, got) {
			return "wrong bytes"
		}
	}
	return carrier(c)
}

// useDefaults clears the environment variables that configure child processes.
func useDefaults(t *testing.T) {
	t.Setenv("SDP_DEVICES", "")
	t.Setenv("SDP_ZCOPY_THRESHOLD", "")
}

// TestSandbox: connections move between programs that a filter restricts, and neither reads the
// other's memory by a system call, for which the filter would end it.
func TestSandbox(t *testing.T) {
	useDefaults(t)
	peek := startSaying(t, io.Discard, "sandboxed peek -", nil)
	if peek.first != "sandboxed" {
		t.Skipf("missing: seccomp: %s", peek.first)
	}
	peek.wait()
	status := peek.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, status.Signaled() && status.Signal() == syscall.SIGSYS, "the sandbox must end the process: %v", peek.cmd.ProcessState)

	server := start(t, "sandboxed serve 127.0.0.1:0", nil)
	client := start(t, "sandboxed dial "+server.first, nil)
	require.Equal(t, "sandboxed", client.first)
	line, err := client.stdout.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "shm", strings.TrimSpace(line))
	for _, k := range []*child{server, client} {
		assert.NoError(t, k.cmd.Process.Signal(syscall.Signal(0)), "the process must be alive")
	}
}

// runCrowded makes many mappings, or uses most descriptors, and dials many times. It keeps
// all connections, makes round trips on each until it moves, and prints their number by device.
func runCrowded(what, address, number string) {
	n, _ := strconv.Atoi(number)
	dials := 400
	switch what {
	case "mappings":
		size := os.Getpagesize()
		b, err := unix.Mmap(-1, 0, n*size, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
		for i := 0; err == nil && i < n; i += 2 {
			err = unix.Mprotect(b[i*size:(i+1)*size], unix.PROT_NONE)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case "descriptors":
		dials = 30
		limit := unix.Rlimit{Cur: uint64(n), Max: uint64(n)}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			if f.Fd() > uintptr(n*3/4) {
				break
			}
			open = append(open, f)
		}
	}
	fmt.Println("crowded")
	over := make(map[string]int)
	for i := range dials {
		c, err := unhurried().Dial("tcp", address)
		for i := 0; i < 50 && err == nil && device(c) == "tcp"; i++ {
			if _, err = c.Write([]byte{1}); err == nil {
				_, err = io.ReadFull(c, make([]byte, 1))
			}
		}
		if err != nil {
			fmt.Println("dial", i, err)
			return
		}
		over[device(c)]++
		conns = append(conns, c)
	}
	fmt.Println(over["shm"], over["tcp"])
}

var (
	open  []*os.File
	conns []net.Conn
)

// TestCrowded: a process near its limit of mappings or descriptors dials. All connections
// must work. Those that would come too near to the limit if they moved must stay on TCP.
func TestCrowded(t *testing.T) {
	useDefaults(t)
	for _, v := range []struct {
		name, role     string
		least, most    int // number of connections over shm
		all            int
		unlessDetector bool
	}{
		{"65,000 mappings", "crowded mappings %s 65000", 0, 0, 400, true},
		{"58,800 mappings", "crowded mappings %s 58800", 20, 180, 400, true},
		{"few descriptors", "crowded descriptors %s 200", 3, 20, 30, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			if v.unlessDetector && raceEnabled {
				t.Skip("missing: a build without the race detector, which has many mappings itself, and ends the process if it cannot make more")
			}
			most, _ := os.ReadFile("/proc/sys/vm/max_map_count")
			if v.unlessDetector && strings.TrimSpace(string(most)) != "65530" {
				t.Skipf("missing: vm.max_map_count=65530; it is %s", most)
			}
			server := start(t, "default 127.0.0.1:0", nil)
			client := start(t, fmt.Sprintf(v.role, server.first), nil)
			require.Equal(t, "crowded", client.first)
			line, err := client.stdout.ReadString('\n')
			require.NoError(t, err)
			var shm, tcp int
			_, err = fmt.Sscan(line, &shm, &tcp)
			require.NoError(t, err, line)
			t.Logf("%d over shm, %d plain", shm, tcp)
			assert.Equal(t, v.all, shm+tcp)
			assert.GreaterOrEqual(t, shm, v.least)
			assert.LessOrEqual(t, shm, v.most)
			assert.NoError(t, client.cmd.Process.Signal(syscall.Signal(0)), "the process must be alive")
		})
	}
}
