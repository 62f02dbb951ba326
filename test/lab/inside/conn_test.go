//go:build linux

package inside

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/gosdp/gosdp/sdp"
)

// TestStepsUp: verbs is used if the address belongs to the hardware.
func TestStepsUp(t *testing.T) {
	cfg := *onVerbs
	cfg.Devices = []string{"verbs", "iwarp"}
	client, server := pair(t, &cfg)
	for _, c := range []*sdp.Conn{client, server} {
		stats := c.Stats()
		require.Equal(t, "verbs", stats.Device, "%v", stats.Declined)
	}
}

// TestStream: every byte arrives in order, both ways at once, with Writes of all sizes.
func TestStream(t *testing.T) {
	client, server := pair(t, onVerbs)
	content := make([]byte, 24<<20)
	rand.NewChaCha8([32]byte{1}).Read(content)
	want := sha256.Sum256(content)
	var both sync.WaitGroup
	for _, c := range []*sdp.Conn{client, server} {
		both.Go(func() {
			rng := rand.New(rand.NewPCG(1, 2))
			for rest := content; len(rest) > 0; {
				n := min(len(rest), 1+rng.IntN(1<<(4+rng.IntN(18))))
				if _, err := c.Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
			assert.NoError(t, c.CloseWrite())
		})
		both.Go(func() {
			sum, buf := sha256.New(), make([]byte, 1<<20)
			_, err := io.CopyBuffer(sum, struct{ io.Reader }{c}, buf)
			assert.NoError(t, err)
			assert.Equal(t, want[:], sum.Sum(nil))
		})
	}
	both.Wait()
	t.Logf("%+v", client.Stats().Traffic)
}

// TestZeroCopy: a long Write is transferred by RDMA Read into the slice of a waiting Read.
func TestZeroCopy(t *testing.T) {
	client, server := pair(t, onVerbs)
	const size = 4 << 20
	content := make([]byte, size)
	rand.NewChaCha8([32]byte{2}).Read(content)
	for range 4 {
		var writing sync.WaitGroup
		writing.Go(func() {
			_, err := client.Write(content)
			assert.NoError(t, err)
		})
		got := make([]byte, size)
		_, err := io.ReadFull(server, got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, got))
		writing.Wait()
	}
	assert.NotZero(t, server.Stats().ZCopyReceived)
}

// TestNetConn runs package nettest's tests.
func TestNetConn(t *testing.T) {
	address(t)
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		c, s, err := dialled(t, onVerbs)
		if err != nil {
			return nil, nil, nil, err
		}
		return c, s, func() { c.Close(); s.Close() }, nil
	})
}

// TestHTTP serves with net/http.
func TestHTTP(t *testing.T) {
	ln, err := (&sdp.ListenConfig{Config: onVerbs}).Listen(context.Background(), "sdp", address(t))
	require.NoError(t, err)
	body := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{3}).Read(body)
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(body) })}
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(ln) })
	defer serving.Wait()
	defer server.Close()
	over := ""
	transport := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		c, err := (&sdp.Dialer{Config: onVerbs}).DialContext(ctx, "sdp", address)
		if sdpConn, ok := c.(*sdp.Conn); ok {
			over = sdpConn.Stats().Device
		}
		return c, err
	}}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	for range 5 {
		response, err := client.Get("http://" + ln.Addr().String() + "/")
		require.NoError(t, err)
		got, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		response.Body.Close()
		require.True(t, bytes.Equal(body, got))
	}
	assert.Equal(t, "verbs", over)
}

// TestManyConnections opens and closes connections concurrently, several times.
func TestManyConnections(t *testing.T) {
	address(t) // skips here, and not in the goroutines, which may not
	for range 5 {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				c, s, err := dialled(t, onVerbs)
				if !assert.NoError(t, err) {
					return
				}
				defer c.Close()
				defer s.Close()
				_, err = c.Write([]byte("hello"))
				assert.NoError(t, err)
				var got [5]byte
				_, err = io.ReadFull(s, got[:])
				assert.NoError(t, err)
				assert.Equal(t, "hello", string(got[:]))
			})
		}
		group.Wait()
	}
}

// TestLoopback: at an address that does not belong to an RDMA device, the connection uses
// iwarp. If only verbs is allowed, network "sdp" fails and the error says why.
func TestLoopback(t *testing.T) {
	address(t)
	ln, err := sdp.Listen("sdp", "127.0.0.1:0")
	require.NoError(t, err)
	var accepting sync.WaitGroup
	defer accepting.Wait()
	defer ln.Close()
	accepting.Go(func() { // a handshake begins when an Accept waits
		for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
			defer c.Close()
		}
	})
	_, err = (&sdp.Dialer{Config: onVerbs}).Dial("sdp", ln.Addr().String())
	require.ErrorContains(t, err, "127.0.0.1 is not the address of an RDMA device")
	cfg := *onVerbs
	cfg.Devices = []string{"verbs", "iwarp"}
	c, err := (&sdp.Dialer{Config: &cfg}).Dial("sdp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	stats := c.(*sdp.Conn).Stats()
	assert.Equal(t, "iwarp", stats.Device)
	assert.Contains(t, stats.Declined["verbs"], "not the address of an RDMA device")
}

// childVariable makes the test binary a peer that is killed.
const childVariable = "VERBS_PEER"

// TestPeerKilled: the survivor reads the data that had arrived, and then gets ECONNRESET.
func TestPeerKilled(t *testing.T) {
	if at := os.Getenv(childVariable); at != "" {
		c, err := (&sdp.Dialer{Config: onVerbs}).Dial("sdp", at)
		require.NoError(t, err)
		_, err = c.Write([]byte("last words"))
		require.NoError(t, err)
		select {}
	}
	ln, err := (&sdp.ListenConfig{Config: onVerbs}).Listen(context.Background(), "sdp", address(t))
	require.NoError(t, err)
	defer ln.Close()
	child := exec.Command(os.Args[0], "-test.run", "^TestPeerKilled$")
	child.Env = append(os.Environ(), childVariable+"="+ln.Addr().String())
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	require.NoError(t, child.Start())
	s, err := ln.Accept()
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, "verbs", s.(*sdp.Conn).Stats().Device)
	got := make([]byte, 10)
	_, err = io.ReadFull(s, got)
	require.NoError(t, err)
	require.Equal(t, "last words", string(got))
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // ignore "signal: killed"
	s.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err = s.Read(got)
	assert.True(t, errors.Is(err, syscall.ECONNRESET), "%v", err)
}

// userVariable makes the test binary run as an unprivileged user.
const userVariable = "VERBS_USER"

// TestUser: without permission, or without enough lockable memory, verbs fails and the error
// says why. If iwarp is allowed, the connection uses it.
func TestUser(t *testing.T) {
	if want := os.Getenv(userVariable); want != "" {
		if want == "RLIMIT_MEMLOCK" {
			limit := syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}
			const memlock = 8 // not defined in package syscall
			require.NoError(t, syscall.Setrlimit(memlock, &limit))
		}
		_, err := (&sdp.ListenConfig{Config: onVerbs}).Listen(context.Background(), "sdp", address(t))
		require.ErrorContains(t, err, want)
		cfg := *onVerbs
		cfg.Devices = []string{"verbs", "iwarp"}
		client, _ := pair(t, &cfg)
		require.Equal(t, "iwarp", client.Stats().Device)
		require.Contains(t, client.Stats().Declined["verbs"], want)
		return
	}
	address(t)
	chmodDevices(t, 0o600)
	asUser(t, "TestUser", userVariable+"=no permission")
	chmodDevices(t, 0o666)
	asUser(t, "TestUser", userVariable+"=RLIMIT_MEMLOCK")
}

// chmodDevices sets the permissions of the RDMA devices.
func chmodDevices(t *testing.T, mode os.FileMode) {
	t.Helper()
	files, err := filepath.Glob("/dev/infiniband/*")
	require.NoError(t, err)
	for _, file := range files {
		require.NoError(t, os.Chmod(file, mode))
	}
}

// asUser runs a test as an unprivileged user.
func asUser(t *testing.T, test, env string) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run", "^"+test+"$", "-test.v")
	child.Env = append(os.Environ(), env)
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	output, err := child.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "--- PASS")
}

// TestLinkDeleted: the device is deleted under load, and all calls return. It runs only if
// VERBS_DELETE is set, and alone.
func TestLinkDeleted(t *testing.T) {
	command := os.Getenv("VERBS_DELETE")
	if command == "" {
		t.Skip("missing: VERBS_DELETE, a command that deletes the device")
	}
	client, server := pair(t, onVerbs)
	idle, _ := pair(t, onVerbs)
	var both sync.WaitGroup
	both.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			if _, err := client.Write(buf); err != nil {
				t.Logf("Write: %v", err)
				assertGone(t, err)
				return
			}
		}
	})
	for _, c := range []*sdp.Conn{server, idle} {
		both.Go(func() {
			buf := make([]byte, 64<<10)
			for {
				if _, err := c.Read(buf); err != nil {
					t.Logf("Read: %v", err)
					assertGone(t, err)
					return
				}
			}
		})
	}
	deleting := exec.Command("bash", "-c", command)
	require.NoError(t, deleting.Start())
	both.Wait()
	client.Close()
	server.Close()
	// The command ends only with this process, which has the device open.

	_, err := (&sdp.Dialer{Config: onVerbs}).Dial("sdp", "127.0.0.1:1")
	require.Error(t, err)
	t.Logf("Dial: %v", err)
	cfg := *onVerbs
	cfg.Devices = []string{"verbs", "iwarp"}
	c, _ := pair(t, &cfg)
	assert.Equal(t, "iwarp", c.Device())
	t.Logf("declined: %v", c.Stats().Declined)
}
