package sdp

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/test/netns"
)

func TestPlainReasonNames(t *testing.T) {
	for r, want := range map[PlainReason]string{
		PlainOther: "other", PlainPeer: "plain_peer", PlainUser: "other_user", PlainHost: "other_host",
		PlainBlind: "kernel_does_not_say", PlainSetupFailed: "setup_failed", PlainRule: "rule", PlainOff: "off", plainReasons: "other",
	} {
		assert.Equal(t, want, r.String())
		text, err := r.MarshalText()
		assert.NoError(t, err)
		assert.Equal(t, want, string(text))
	}
	b, err := json.Marshal(map[PlainReason]uint64{PlainUser: 1})
	assert.NoError(t, err)
	assert.Equal(t, `{"other_user":1}`, string(b))
}

// tcpEnds connects to a listener that announces SDP, and returns both ends.
func tcpEnds(t *testing.T) (dialled, accepted net.Conn) {
	t.Helper()
	lc := net.ListenConfig{Control: Announce}
	ln, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	dialled, err = net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { dialled.Close() })
	accepted, err = ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { accepted.Close() })
	return dialled, accepted
}

func TestPlainReasonOfAConnection(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	assert.Equal(t, PlainOther, plainReason(a, nil))
	c, peer := tcpEnds(t)
	assert.Equal(t, PlainSetupFailed, plainReason(c, nil), "the peer has announced SDP")
	require.NoError(t, peer.(*net.TCPConn).SetLinger(0))
	peer.Close()
	assert.Equal(t, PlainHost, plainReason(c, nil), "no socket here is the other end")
}

func TestPlainReasonOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to be another user")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer unix.Setfsuid(0)
	require.NoError(t, unix.Setfsuid(12345)) // whose this thread's sockets are then
	c, _ := tcpEnds(t)
	require.NoError(t, unix.Setfsuid(0))
	require.NoError(t, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)) // otherwise no peer may read this process's memory any more
	assert.Equal(t, PlainUser, plainReason(c, nil))
}

// TestPlainReasonOfAnotherNamespace: this process may ask about connections of its own.
func TestPlainReasonOfAnotherNamespace(t *testing.T) {
	netns.Enter(t)
	c, _ := tcpEnds(t)
	reason := make(chan PlainReason)
	go func() { reason <- plainReason(c, nil) }() // in the namespace of all others
	assert.Equal(t, PlainBlind, <-reason)
}
