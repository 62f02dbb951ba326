package sdp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// What an end says on the Unix socket.
const (
	shmMagic = "SDPshm5\n"
	shmArea  = 1_114_112
	shmSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
)

// shmProof is the proof of an end that has the ticket.
func shmProof(ticket [40]byte, end string) []byte {
	h := hmac.New(sha256.New, ticket[:16])
	h.Write([]byte(end))
	return h.Sum(nil)
}

// shmSocket is the name of the socket of a ticket.
func shmSocket(ticket [40]byte) string { return "@sdp-" + hex.EncodeToString(ticket[16:32]) }

// shmMeeting is what a server says, and shmDecision a client, that wants no reach.
func shmMeeting(ticket [40]byte) []byte {
	return append(append([]byte(shmMagic), shmProof(ticket, "serves")...), make([]byte, 1+8+16)...)
}

func shmDecision(ticket [40]byte) []byte {
	return append(shmProof(ticket, "decides"), 0)
}

// shmMeetingRule is broken by a server that takes the channel that a client has offered: the
// connection goes on as plain TCP.
type shmMeetingRule struct {
	rule, name string
	stays      bool                     // it says nothing of the channel, and does not come
	says       func(good []byte) []byte // in place of the meeting that is right; nil: that one
	files      []func(*testing.T) int   // that come with it
	declined   string
}

var shmMeetingRules = []shmMeetingRule{
	{rule: "Setting up a connection: A server that chooses shm opens its end before it replies", name: "it has not come", stays: true, declined: "peer did not connect"},
	{rule: "shm: sends its meeting, and then sends its Reply", name: "silence", says: func([]byte) []byte { return nil }, declined: "resource temporarily unavailable"},
	{rule: "shm: 0 | 8 | SDPshm5", name: "another magic", says: func(b []byte) []byte { return spoilt(b, 3, 'x') }, declined: "malformed rendezvous message"},
	{rule: `shm: the server's proof: HMAC("serves")`, name: "another proof", says: func(b []byte) []byte { return spoilt(b, 8, b[8]+1) }, declined: "failed to prove that it has the token"},
	{rule: "shm: Each of the two messages is sent by one call", name: "a meeting cut short", says: func(b []byte) []byte { return b[:64] }, declined: "short rendezvous message"},
	{rule: "shm: No other descriptor is ever sent", name: "a descriptor", files: []func(*testing.T) int{goodFile}, declined: ""},
}

// TestHostileMeetings has a Dial go on as plain TCP, whatever is wrong with the server's end
// of the channel.
func TestHostileMeetings(t *testing.T) {
	t.Setenv(thresholdVariable, "-1") // the client wants no reach
	defer hostileLeavesNothing(t)()
	for _, r := range shmMeetingRules {
		t.Run(r.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			served := make(chan struct{})
			go func() {
				defer close(served)
				tcp, err := ln.Accept()
				if err != nil {
					return
				}
				defer tcp.Close()
				o, err := readOffers(tcp)
				if !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, wire.NewChannel, o.Channel)
				if !r.stays {
					c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: shmSocket(o.Ticket), Net: "unix"})
					if !assert.NoError(t, err) {
						return
					}
					defer c.Close()
					b := shmMeeting(o.Ticket)
					if r.says != nil {
						b = r.says(b)
					}
					var fds []int
					for _, f := range r.files {
						fds = append(fds, f(t))
					}
					if len(b) > 0 {
						if _, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil); err != nil {
							assert.ErrorIs(t, err, unix.EPERM) // the kernel has refused the descriptor
						}
					}
					defer func() {
						said, _ := io.ReadAll(c)
						assert.Empty(t, said, "what it was told")
					}()
				}
				tcp.Write(hostileFrame(hostileReplyKey, 0x40, 1, hostileChoice(byte(wire.DeviceSHM), []byte{4, 0})...))
				io.Copy(tcp, tcp)
			}()
			// The server is no listener of SDP that the kernel knows of, so the attempt is made by hand.
			tcp, err := net.Dial("tcp", ln.Addr().String())
			require.NoError(t, err)
			defer func() { <-served }()
			defer tcp.Close()
			config := &Config{Devices: []string{"shm"}, ReplyTimeout: soon, StepUpTimeout: soon}
			n, err := parseNetwork("tcp")
			require.NoError(t, err)
			set, err := config.settings(n, false)
			require.NoError(t, err)
			_, err = set.offer(t.Context(), &handshake.Client{Config: &set.Config, Redials: true}, tcp)
			require.True(t, usable(err))
			assert.ErrorContains(t, err, r.declined)
			_, err = tcp.Write([]byte("hello"))
			require.NoError(t, err)
			got := make([]byte, 5)
			require.NoError(t, tcp.SetDeadline(time.Now().Add(soon)))
			_, err = io.ReadFull(tcp, got)
			require.NoError(t, err)
			assert.Equal(t, "hello", string(got))
		})
	}
}

// shmChoiceRules are broken by a server that chooses shm, and does not say, or not only, that
// it has taken the channel: the connection goes on over iwarp if it may, and ends if not.
var shmChoiceRules = []struct {
	rule, name string
	items      [][]byte
	declined   string
	error      string
}{
	{rule: "Choice: shm only taken", name: "no item", items: [][]byte{{5, 0}}, declined: "invitation without token"},
	{rule: "Choice: shm only taken", name: "a token and a port", items: [][]byte{hostileItem(1, 16), {3, 2, 0, 80}, {5, 0}}, declined: "a device that cannot be dialed"},
	{rule: "Setting up a connection: the connection continues over iwarp if the choice says that the client may stay", name: "it may not stay", items: nil, error: "no RDMA device can be used: shm: invitation without token"},
	{rule: "Choice: the channel is the one that the client has offered", name: "taken, and nobody has come", items: [][]byte{{4, 0}, {5, 0}}, error: "shm: peer did not connect"},
}

// TestHostileChoices has Client, which makes no other connection.
func TestHostileChoices(t *testing.T) {
	defer hostileLeavesNothing(t)()
	for _, r := range shmChoiceRules {
		t.Run(r.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			served := make(chan struct{})
			go func() {
				defer close(served)
				tcp, err := ln.Accept()
				if !assert.NoError(t, err) {
					return
				}
				defer tcp.Close()
				_, err = readOffers(tcp)
				assert.NoError(t, err)
				tcp.Write(hostileFrame(hostileReplyKey, 0x40, 1, hostileChoice(byte(wire.DeviceSHM), r.items...)...))
				if r.declined != "" {
					io.ReadFull(tcp, make([]byte, 40)) // the decision
					tcp.Write(hostileSession(false))
				}
				io.Copy(io.Discard, tcp)
			}()
			tcp, err := net.Dial("tcp", ln.Addr().String())
			require.NoError(t, err)
			defer func() { <-served }()
			defer tcp.Close()
			c, err := Client(tcp, &Config{Devices: []string{"shm", "iwarp"}, ReplyTimeout: soon, StepUpTimeout: soon})
			if r.error != "" {
				require.ErrorContains(t, err, r.error)
				return
			}
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
			got, err := io.ReadAll(c)
			assert.NoError(t, err)
			assert.Equal(t, "hello", string(got))
			assert.Equal(t, "iwarp", c.Device())
			assert.Contains(t, c.Stats().Declined["shm"], r.declined)
		})
	}
}

// shmReachRule has a test of its own: TestMemoryOutOfReach of package shm.
const shmReachRule = "shm: There is reach only if both ends say so"

// readOffers reads a Request, and returns its offers.
func readOffers(c net.Conn) (wire.Offers, error) {
	_, private, err := readFrame(c, iwarp.RequestKey)
	if err != nil {
		return wire.Offers{}, err
	}
	o, _, err := wire.ParseOffers(private)
	return o, err
}

// shmDecisionRule is broken by a client that has offered a channel which the server has taken.
type shmDecisionRule struct {
	rule, name string
	says       func(good []byte) []byte // in place of the decision that is right; nil: that one
	more       string                   // after it
	files      []func(*testing.T) int   // that come with it
	stays      bool                     // it does not end the channel
	error      string
}

var shmDecisionRules = []shmDecisionRule{
	{rule: "Setting up a connection: and a server that serves no plain TCP closes it", name: "it closes the channel", says: func([]byte) []byte { return nil }, error: "has not taken the channel"},
	{rule: "Setting up a connection: and has decided when it has sent its decision there", name: "silence", says: func([]byte) []byte { return nil }, stays: true},
	{rule: `shm: the client's proof: HMAC("decides")`, name: "another proof", says: func(b []byte) []byte { return spoilt(b, 0, b[0]+1) }, files: []func(*testing.T) int{goodFile}, error: "and did not open it: shm: peer failed to prove that it has the token"},
	{rule: "shm: Each of the two messages is sent by one call", name: "a decision cut short", says: func(b []byte) []byte { return b[:32] }, files: []func(*testing.T) int{goodFile}, error: "short rendezvous message"},
	{rule: "shm: and nothing else is sent before the channel is open", name: "more after it", more: "x", files: []func(*testing.T) int{goodFile}, error: "unexpected data after the decision message"},
	{rule: "shm: One descriptor comes with the decision", name: "no descriptor", error: "decision message without a file descriptor"},
	{rule: "shm: One descriptor comes with the decision", name: "two descriptors", files: []func(*testing.T) int{goodFile, goodFile}, error: "more than one file descriptor"},
	{rule: "shm: a memory file of 1,114,112 bytes", name: "a pipe", files: []func(*testing.T) int{pipeFile}, error: "shm: peer's file descriptor is not a memfd"},
	{rule: "shm: a memory file of 1,114,112 bytes", name: "a file that is too short", files: []func(*testing.T) int{fileOf(shmArea-1, shmSeals)}, error: "shm: peer's memfd has 1114111 bytes, want 1114112"},
	{rule: "shm: a memory file of 1,114,112 bytes", name: "a file that is too long", files: []func(*testing.T) int{fileOf(shmArea+1, shmSeals)}, error: "shm: peer's memfd has 1114113 bytes, want 1114112"},
	{rule: "shm: the version of the layout, 5", name: "a file with another layout", files: []func(*testing.T) int{fileOfLayout(4)}, error: "shm: peer's memory has layout version 4, want 5"},
	{rule: "shm: with the seals SHRINK, GROW and SEAL", name: "a file that may shrink", files: []func(*testing.T) int{fileOf(shmArea, shmSeals&^unix.F_SEAL_SHRINK)}, error: "shm: peer's memfd has seals 0x5, want 0x7"},
	{rule: "shm: with the seals SHRINK, GROW and SEAL", name: "a file that may not be written", files: []func(*testing.T) int{fileOf(shmArea, shmSeals|unix.F_SEAL_WRITE)}, error: "shm: peer's memfd is sealed against writing"},
}

// TestHostileDecisions has a connection end when the client has not taken the channel as it
// should.
func TestHostileDecisions(t *testing.T) {
	t.Setenv(thresholdVariable, "-1") // the server wants no reach
	defer hostileLeavesNothing(t)()
	for _, r := range shmDecisionRules {
		t.Run(r.name, func(t *testing.T) {
			config := &Config{Devices: []string{"shm"}, HandshakeTimeout: time.Minute, StepUpTimeout: soon}
			if r.stays {
				config.StepUpTimeout = time.Second
			}
			client, served := hostileClient(t, config)
			defer client.Close()
			client.SetDeadline(time.Now().Add(soon))
			ticket := [40]byte{1, 2, 3, 31: byte(os.Getpid()), 30: byte(os.Getpid() >> 8)}
			ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: shmSocket(ticket), Net: "unix"})
			require.NoError(t, err)
			defer ln.Close()
			choice := offersNew(t, client, ticket)
			require.Equal(t, wire.Choice{Device: wire.DeviceSHM, Taken: true}, choice)
			c, err := ln.AcceptUnix()
			require.NoError(t, err)
			defer c.Close()
			got := make([]byte, len(shmMeeting(ticket)))
			_, err = io.ReadFull(c, got)
			require.NoError(t, err)
			assert.Equal(t, shmMeeting(ticket), got)
			b := shmDecision(ticket)
			if r.says != nil {
				b = r.says(b)
			}
			var fds []int
			for _, f := range r.files {
				fds = append(fds, f(t))
			}
			if b = append(b, r.more...); len(b) > 0 {
				_, _, err = c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
				require.NoError(t, err)
			}
			if !r.stays {
				c.CloseWrite()
			}
			if len(b) == 0 { // one that goes on as plain TCP, or is too slow, sends nothing of SDP there
				up := <-served
				require.NoError(t, up.err)
				assert.IsType(t, client, up.Conn)
				up.Close()
				return
			}
			up := <-served
			require.ErrorContains(t, up.err, r.error)
		})
	}
	assert.Eventually(t, func() bool { return holds(t).areas == 0 }, soon, time.Millisecond)
}

// offersNew has a client offer a new channel, and returns the server's choice.
func offersNew(t *testing.T, client net.Conn, ticket [40]byte) wire.Choice {
	t.Helper()
	o := wire.Offers{
		Devices: []wire.Device{wire.DeviceSHM, wire.DeviceIWARP},
		Client:  netip.MustParseAddrPort(client.LocalAddr().String()), Server: netip.MustParseAddrPort(client.RemoteAddr().String()),
		Ticket: ticket, Channel: wire.NewChannel,
	}
	o.Host, o.HasHost = handshake.HostID([16]byte{1})
	private, err := o.Append(nil)
	require.NoError(t, err)
	_, err = client.Write(hostileFrame(iwarp.RequestKey, 0x40, 1, append(private, hostileHello(false)...)...))
	require.NoError(t, err)
	_, reply := readReply(t, client)
	choice, _, err := wire.ParseChoice(reply)
	require.NoError(t, err)
	return choice
}

// shmFile is a memory file.
func shmFile(t *testing.T, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("sdp-rules", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	require.NoError(t, unix.Ftruncate(fd, size))
	if seals&unix.F_SEAL_WRITE == 0 {
		_, err = unix.Pwrite(fd, []byte{5}, 0) // the version of the layout
		require.NoError(t, err)
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	return fd
}

func goodFile(t *testing.T) int { return shmFile(t, shmArea, shmSeals) }

// fileOf is a memory file that is not as it should be.
func fileOf(size int64, seals int) func(*testing.T) int {
	return func(t *testing.T) int { return shmFile(t, size, seals) }
}

// fileOfLayout is a memory file of another version of the layout.
func fileOfLayout(version byte) func(*testing.T) int {
	return func(t *testing.T) int {
		fd := goodFile(t)
		_, err := unix.Pwrite(fd, []byte{version}, 0)
		require.NoError(t, err)
		return fd
	}
}

func pipeFile(t *testing.T) int {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	return int(r.Fd())
}

// rulesOfSharedMemory are those of the tables here.
func rulesOfSharedMemory() (all []string) {
	for _, r := range shmMeetingRules {
		all = append(all, r.rule)
	}
	for _, r := range shmDecisionRules {
		all = append(all, r.rule)
	}
	for _, r := range shmChoiceRules {
		all = append(all, r.rule)
	}
	return append(all, shmReachRule)
}
