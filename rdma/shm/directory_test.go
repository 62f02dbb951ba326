//go:build linux

package shm

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// meeting returns how two ends are configured that meet in a directory, and that directory.
func meetingIn(t *testing.T) (rdma.ChannelConfig, string) {
	t.Helper()
	cfg := stepConfig
	cfg.Dir = t.TempDir()
	return cfg, cfg.Dir
}

func placeIn(t *testing.T, cfg rdma.ChannelConfig) *place {
	t.Helper()
	p, err := device{}.Listen(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p.(*place)
}

// sockets are the files in a directory.
func sockets(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(dir + "/*")
	require.NoError(t, err)
	return all
}

// TestMeetInDirectory opens a channel through a file, which is gone when it is open.
func TestMeetInDirectory(t *testing.T) {
	before := descriptors(t)
	cfg, dir := meetingIn(t)
	p := placeIn(t, cfg)
	o := newOffer(t, "", cfg)
	require.Len(t, sockets(t, dir), 1)
	a, b, err := open(t.Context(), p, o, rdma.Peer{InDir: true})
	require.NoError(t, err)
	says(t, a, b, "there")
	says(t, b, a, "back")
	assert.Empty(t, sockets(t, dir))
	a.Abort()
	b.Abort()
	newOffer(t, "", cfg).Drop()
	assert.Empty(t, sockets(t, dir))
	closesEnd(t)
	assert.LessOrEqual(t, descriptors(t), before+1, "the directory")
}

// TestMeetElsewhere: a client that meets its server in a directory is found in no other place.
func TestMeetElsewhere(t *testing.T) {
	cfg, _ := meetingIn(t)
	other, _ := meetingIn(t)
	for name, v := range map[string]struct {
		place, offer rdma.ChannelConfig
		peer         rdma.Peer
		why          string
	}{
		"another directory":  {cfg, other, rdma.Peer{InDir: true}, "no such file"},
		"no directory":       {stepConfig, cfg, rdma.Peer{InDir: true}, "but none is configured"},
		"network namespace":  {cfg, cfg, rdma.Peer{}, "connection refused"},
		"not in a directory": {cfg, stepConfig, rdma.Peer{InDir: true}, "no such file"},
		"a directory that is not there": {
			func() rdma.ChannelConfig { c := cfg; c.Dir = "/none"; return c }(), cfg, rdma.Peer{InDir: true}, "no such file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffer(t, "", v.offer)
			defer o.Drop()
			_, err := placeIn(t, v.place).Meet(v.peer, o.Ticket(), 1)
			assert.ErrorContains(t, err, v.why)
		})
	}
}

// TestRelayInDirectory: a process that puts its socket in the place of the client's is told
// nothing by the server, and so cannot be taken for either of them.
func TestRelayInDirectory(t *testing.T) {
	cfg, dir := meetingIn(t)
	p := placeIn(t, cfg)
	o := newOffer(t, "", cfg)
	defer o.Drop()
	file := sockets(t, dir)[0]
	require.NoError(t, os.Rename(file, file+"0"))
	relay, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: file})
	require.NoError(t, err)
	defer relay.Close()
	_, err = p.Meet(rdma.Peer{InDir: true}, o.Ticket(), 1)
	assert.ErrorContains(t, err, "socket replaced by another process")
	require.NoError(t, relay.SetDeadline(time.Unix(1, 0)))
	_, err = relay.Accept()
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded, "the server has connected to it")
}

// TestIdleChannelOfDirectory: a channel that was opened through a file serves further
// connections without one.
func TestIdleChannelOfDirectory(t *testing.T) {
	emptied(t)
	cfg, dir := meetingIn(t)
	p := placeIn(t, cfg)
	a, b, err := open(t.Context(), p, newOffer(t, "here", cfg), rdma.Peer{InDir: true})
	require.NoError(t, err)
	closed(t, a, b)
	idle := device{}.Idle("here", cfg)
	require.NotNil(t, idle)
	r, err := p.Resume(rdma.Peer{InDir: true}, idle.Ticket(), 3)
	require.NoError(t, err)
	q, err := idle.Take(2)
	require.NoError(t, err)
	says(t, q.(*QueuePair), r.(*QueuePair), "again")
	assert.Empty(t, sockets(t, dir))
	q.Abort()
	r.Abort()
}
