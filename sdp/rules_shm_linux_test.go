package sdp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/listener"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// What an end says on the Unix socket.
const (
	shmMagic   = "SDPshm3\n"
	shmArea    = 1_114_112
	shmSeals   = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	shmRefused = 2
)

// shmMAC is the HMAC of parts under a token.
func shmMAC(token []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, token)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// shmText is the end of what they say: its length, and what follows.
func shmText(b, text []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// shmChallenge is what a server says first, to an opening.
func shmChallenge(token, opening []byte, flags byte, text []byte) []byte {
	nonce := make([]byte, 16)
	b := append([]byte(shmMagic), flags)
	b = append(b, nonce...)
	b = append(b, shmMAC(token, []byte("listens"), opening[16:32], nonce)...)
	return shmText(b, text)
}

// shmAnswer is what a server says with the memory file.
func shmAnswer(flags byte, private []byte) []byte {
	b := append([]byte{flags}, make([]byte, 8+16)...)
	return shmText(b, private)
}

// shmAnswerRule is broken by a server that has a client come to a Unix socket:
// the connection goes on over iwarp.
type shmAnswerRule struct {
	rule, name string
	token      bool                     // the choice has one,
	socket     string                   // and this name; "": the one on which the server listens
	challenge  func(good []byte) []byte // in place of the challenge that is right; nil: that one
	answer     []byte
	files      []func(*testing.T) int // that come with the answer
	silent     bool                   // it does not close behind that
	declined   string
}

const noSocket = "none"

// nothing is said.
func nothing([]byte) []byte { return nil }

var shmAnswerRules = []shmAnswerRule{
	{rule: "Choice: shm a token and a socket", name: "no token", declined: "the peer has sent no token"},
	{rule: "Choice: shm a token and a socket", name: "no socket", token: true, socket: noSocket, declined: "the peer names no socket"},
	{rule: "Choice: the name of an abstract Unix socket", name: "a name that nobody has", token: true, socket: "sdp-rules-nobody", declined: "connection refused"},
	{rule: "Setting up a connection: If this fails for any reason, the connection goes on over iwarp", name: "no challenge", token: true, challenge: nothing, declined: "has closed the channel before it was open"},
	{rule: "Setting up a connection: If this fails for any reason, the connection goes on over iwarp", name: "silence", token: true, challenge: nothing, silent: true, declined: "timeout"},
	{rule: "shm: 0 | 8 | SDPshm3", name: "another magic", token: true, challenge: func(b []byte) []byte { return spoilt(b, 3, 'x') }, declined: "the challenge is not one"},
	{rule: "shm: 0x04: the server wants reach; 0x02: refused", name: "a refusal", token: true, challenge: func(b []byte) []byte {
		return shmText(spoilt(b, 8, shmRefused)[:57], []byte("as you like"))
	}, declined: `the peer refuses: "as you like"`},
	{rule: `shm: the server's proof: HMAC("listens", client's nonce, server's nonce)`, name: "another proof", token: true, challenge: func(b []byte) []byte { return spoilt(b, 25, b[25]+1) }, declined: "does not have the token"},
	{rule: "shm: length of what follows, at most 255", name: "a reason of 256 bytes", token: true, challenge: func(b []byte) []byte {
		return shmText(b[:57], make([]byte, 256))
	}, declined: "the peer says 256 bytes"},
	{rule: "shm: length of what follows", name: "a challenge cut short", token: true, challenge: func(b []byte) []byte { return b[:58] }, declined: "has closed the channel before it was open"},
	{rule: "shm: if both want reach, the address of a probe in the server's memory", name: "no answer", token: true, declined: "has closed the channel before it was open"},
	{rule: "shm: 0x01: the server has read the client's probe where it was said to be; 0x02: refused", name: "a later refusal", token: true, answer: shmAnswer(shmRefused, []byte("as you like")), declined: `the peer refuses: "as you like"`},
	{rule: "shm: length of what follows, at most 255", name: "256 bytes", token: true, answer: shmAnswer(0, make([]byte, 256)), declined: "the peer says 256 bytes"},
	{rule: "shm: length of what follows", name: "an answer cut short", token: true, answer: shmAnswer(0, hostileHello(true))[:50], files: []func(*testing.T) int{goodFile}, declined: "has closed the channel before it was open"},
	{rule: "shm: comes one descriptor", name: "no descriptor", token: true, answer: shmAnswer(0, hostileHello(true)), declined: "no descriptor came"},
	{rule: "shm: comes one descriptor", name: "two descriptors", token: true, answer: shmAnswer(0, hostileHello(true)), files: []func(*testing.T) int{goodFile, goodFile}, declined: "more than one descriptor came"},
	{rule: "shm: a memory file of 1,114,112 bytes", name: "a pipe", token: true, answer: shmAnswer(0, hostileHello(true)), files: []func(*testing.T) int{pipeFile}, declined: "shm: the peer's descriptor is no memory file"},
	{rule: "shm: a memory file of 1,114,112 bytes", name: "a file that is too short", token: true, answer: shmAnswer(0, hostileHello(true)), files: []func(*testing.T) int{fileOf(shmArea-1, shmSeals)}, declined: "shm: the peer's memory file has 1114111 bytes, not 1114112"},
	{rule: "shm: a memory file of 1,114,112 bytes", name: "a file that is too long", token: true, answer: shmAnswer(0, hostileHello(true)), files: []func(*testing.T) int{fileOf(shmArea+1, shmSeals)}, declined: "shm: the peer's memory file has 1114113 bytes, not 1114112"},
	{rule: "shm: the version of the layout, 3", name: "a file with another layout", token: true, answer: shmAnswer(0, hostileHello(true)), files: []func(*testing.T) int{fileOfLayout(4)}, declined: "shm: the peer's memory has the layout 4, ours is 3"},
	{rule: "shm: with the seals SHRINK, GROW and SEAL", name: "a file that may shrink", token: true, answer: shmAnswer(0, hostileHello(true)), files: []func(*testing.T) int{fileOf(shmArea, shmSeals&^unix.F_SEAL_SHRINK)}, declined: "shm: the peer's memory file has the seals 0x5, 0x7 are needed"},
	{rule: "shm: with the seals SHRINK, GROW and SEAL", name: "a file that may not be written", token: true, answer: shmAnswer(0, hostileHello(true)), files: []func(*testing.T) int{fileOf(shmArea, shmSeals|unix.F_SEAL_WRITE)}, declined: "shm: the peer's memory file is sealed against writing"},
	{rule: "Setting up a connection: There the ends exchange Hello and HelloAck again", name: "a HelloAck that is wrong", token: true, answer: shmAnswer(0, spoilt(hostileHello(true), 18, 0, 0)), files: []func(*testing.T) int{goodFile}, declined: "HelloAck: MaxAdverts: is 0"},
	{rule: "Setting up a connection: There the ends exchange Hello and HelloAck again", name: "no HelloAck", token: true, answer: shmAnswer(0, nil), files: []func(*testing.T) int{goodFile}, declined: "HelloAck: Len: 0 bytes came of 28"},
}

// TestHostileAnswers has a Dial go on over iwarp, whatever is wrong with the
// channel to which the server invites it.
func TestHostileAnswers(t *testing.T) {
	defer hostileLeavesNothing(t)()
	for i, r := range shmAnswerRules {
		t.Run(r.name, func(t *testing.T) {
			name := fmt.Sprintf("sdp-rules-%d-%d", os.Getpid(), i)
			invites, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + name, Net: "unix"})
			require.NoError(t, err)
			defer invites.Close()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			var items [][]byte
			if r.token {
				items = append(items, hostileItem(1, 16))
			}
			switch r.socket {
			case noSocket:
			case "":
				items = append(items, append([]byte{2, byte(len(name))}, name...))
			default:
				items = append(items, append([]byte{2, byte(len(r.socket))}, r.socket...))
			}
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				c, err := invites.AcceptUnix()
				if err != nil {
					return
				}
				defer c.Close()
				b := make([]byte, 1024)
				n, err := c.Read(b)
				assert.NoError(t, err)
				assert.Equal(t, 32, n)
				good := shmChallenge(make([]byte, 16), b[:n], 0, nil)
				if r.challenge != nil {
					c.Write(r.challenge(good))
				} else {
					c.Write(good)
					n, err := c.Read(b)
					assert.NoError(t, err)
					assert.Equal(t, 59+wire.HelloLen, n)
					var fds []int
					for _, f := range r.files {
						fds = append(fds, f(t))
					}
					c.WriteMsgUnix(r.answer, unix.UnixRights(fds...), nil)
				}
				if !r.silent {
					c.CloseWrite()
				}
				io.Copy(io.Discard, c)
			}()
			served := make(chan struct{})
			go func() {
				defer close(served)
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if _, _, err := readFrame(c, iwarp.RequestKey); err != nil {
					return
				}
				c.Write(hostileFrame(hostileReplyKey, 0x40, 1, hostileChoice(byte(wire.DeviceSHM), append(items, []byte{5, 0})...)...)) // it may stay
				io.ReadFull(c, make([]byte, 40))                                                                                        // the decision
				c.Write(hostileSession(false))
				io.Copy(io.Discard, c)
			}()
			config := &Config{Devices: []string{"shm", "iwarp"}, ReplyTimeout: 10 * time.Second, StepUpTimeout: 10 * time.Second}
			if r.silent {
				config.StepUpTimeout = 50 * time.Millisecond
			}
			c, err := (&Dialer{Config: config}).Dial("sdp", ln.Addr().String())
			invites.Close()
			<-answered
			require.NoError(t, err)
			defer func() { <-served }()
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
			got, err := io.ReadAll(c)
			assert.NoError(t, err)
			assert.Equal(t, "hello", string(got))
			assert.Equal(t, "iwarp", c.(*Conn).Device())
			assert.Contains(t, c.(*Conn).Stats().Declined["shm"], r.declined)
		})
	}
}

// shmOpening is what a client says on the Unix socket, with the token that it
// was given.
func shmOpening(token []byte) []byte {
	b := append([]byte(shmMagic), shmMAC(token, []byte("name"))[:8]...)
	return append(b, make([]byte, 16)...)
}

// shmResponse is what it says to a challenge.
func shmResponse(token, challenge, private []byte) []byte {
	b := shmMAC(token, []byte("dials"), make([]byte, 16), challenge[9:25])
	b = append(b, make([]byte, 1+8+16)...)
	return shmText(b, private)
}

// shmOpeningRule is broken by a client that was invited to a Unix socket.
type shmOpeningRule struct {
	rule, name string
	comes      func(t *testing.T, c *net.UnixConn, token []byte) // nil: it does not
	stepsUp    bool                                              // and says so, or stays
	error      string                                            // "": the connection goes on over iwarp
}

// shmFile is a memory file.
func shmFile(t *testing.T, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("sdp-rules", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	require.NoError(t, unix.Ftruncate(fd, size))
	if seals&unix.F_SEAL_WRITE == 0 {
		_, err = unix.Pwrite(fd, []byte{3}, 0) // the version of the layout
		require.NoError(t, err)
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	return fd
}

// opens says an opening, and ends.
func opens(change func(opening []byte) []byte) func(*testing.T, *net.UnixConn, []byte) {
	return func(t *testing.T, c *net.UnixConn, token []byte) {
		_, err := c.Write(change(shmOpening(token)))
		require.NoError(t, err)
		c.CloseWrite()
	}
}

// responds says a good opening, and a response, and ends.
func responds(change func(response []byte) []byte, private []byte) func(*testing.T, *net.UnixConn, []byte) {
	return func(t *testing.T, c *net.UnixConn, token []byte) {
		opening := shmOpening(token)
		_, err := c.Write(opening)
		require.NoError(t, err)
		challenge := make([]byte, 59)
		_, err = io.ReadFull(c, challenge)
		require.NoError(t, err)
		assert.Equal(t, shmMAC(token, []byte("listens"), opening[16:32], challenge[9:25]), challenge[25:57])
		b := shmResponse(token, challenge, private)
		if change != nil {
			b = change(b)
		}
		_, err = c.Write(b)
		require.NoError(t, err)
		c.CloseWrite()
	}
}

// sendsFile sends a descriptor with its opening, which the kernel may refuse.
func sendsFile(t *testing.T, c *net.UnixConn, token []byte) {
	_, _, err := c.WriteMsgUnix(shmOpening(token), unix.UnixRights(goodFile(t)), nil)
	if err != nil {
		require.ErrorIs(t, err, unix.EPERM)
	}
	c.CloseWrite()
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

// late is the error of a server that has not heard of the client's channel.
const late = "and is not there: context deadline exceeded"

var shmOpeningRules = []shmOpeningRule{
	{rule: "Setting up a connection: The server closes the channel that was not taken", name: "it stays, and has not come", error: ""},
	{rule: "Setting up a connection: The server closes the channel that was not taken", name: "it stays, and has come", comes: responds(nil, hostileHello(false)), error: ""},
	{rule: `Setting up a connection: StepUp (MSeq 1) means "we go on over the new channel"`, name: "it steps up, and has not come", stepsUp: true, error: "the client steps up to shm, and is not there: context deadline exceeded"},
	{rule: `shm: the name of the invitation: the first 8 bytes of HMAC("name")`, name: "another name", comes: opens(func(b []byte) []byte { return spoilt(b, 8, b[8]+1) }), stepsUp: true, error: late},
	{rule: "shm: An end closes on anything else", name: "another magic", comes: opens(func(b []byte) []byte { return spoilt(b, 0, 'x') }), stepsUp: true, error: late},
	{rule: "shm: An end closes on anything else", name: "an opening cut short", comes: opens(func(b []byte) []byte { return b[:31] }), stepsUp: true, error: late},
	{rule: "shm: No other descriptor is ever sent", name: "a descriptor", comes: sendsFile, stepsUp: true, error: late},
	{rule: `shm: the client's proof: HMAC("dials", client's nonce, server's nonce)`, name: "another proof", comes: responds(func(b []byte) []byte { return spoilt(b, 0, b[0]+1) }, hostileHello(false)), stepsUp: true, error: "and is not there: shm: the peer does not have the token"},
	{rule: "shm: length of what follows, at most 255", name: "256 bytes of a Hello", comes: responds(nil, make([]byte, 256)), stepsUp: true, error: "and is not there: shm: the peer says 256 bytes"},
	{rule: "shm: length of what follows", name: "a response cut short", comes: responds(func(b []byte) []byte { return b[:60] }, hostileHello(false)), stepsUp: true, error: "and is not there: shm: the peer has closed the channel before it was open"},
	{rule: "Setting up a connection: There the ends exchange Hello and HelloAck again", name: "a Hello that is wrong", comes: responds(nil, spoilt(hostileHello(false), 18, 0, 0)), stepsUp: true, error: "and is not there: wire: Hello: MaxAdverts: is 0"},
	{rule: "Setting up a connection: There the ends exchange Hello and HelloAck again", name: "no Hello", comes: responds(nil, nil), stepsUp: true, error: "and is not there: wire: Hello: Len: 0 bytes came of 32"},
	{rule: "shm: The client ends this with one byte", name: "no last byte", comes: responds(nil, hostileHello(false)), stepsUp: true, error: "and is not there: shm: the peer has closed the channel before it was open"},
}

// TestHostileOpenings has a connection go on over iwarp when the client has not
// come to the channel, and end when it says that it has.
func TestHostileOpenings(t *testing.T) {
	defer hostileLeavesNothing(t)()
	for _, r := range shmOpeningRules {
		t.Run(r.name, func(t *testing.T) {
			client, served := hostileClient(t, &Config{
				Devices: []string{"shm", "iwarp"}, HandshakeTimeout: time.Minute, StepUpTimeout: 300 * time.Millisecond,
			})
			defer client.Close()
			client.SetDeadline(time.Now().Add(10 * time.Second))
			choice := invitation(t, client)
			require.Equal(t, wire.DeviceSHM, choice.Device)
			if r.comes != nil {
				c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: "@" + choice.Socket, Net: "unix"})
				require.NoError(t, err)
				r.comes(t, c, choice.Token[:])
				io.Copy(io.Discard, c) // up to the server's end, which has read it all then
				c.Close()
			}
			if r.stepsUp {
				client.Write(hostileFPDU(1, wire.Message{Header: wire.Header{MID: wire.MIDStepUp, Bufs: 64, MSeq: 1}}))
			} else {
				client.Write(hostileSession(true))
			}
			up := <-served
			if r.error != "" {
				require.ErrorContains(t, up.err, r.error)
				return
			}
			require.NoError(t, up.err)
			defer up.Close()
			require.NoError(t, up.SetDeadline(time.Now().Add(10*time.Second)))
			got, err := io.ReadAll(up)
			assert.NoError(t, err)
			assert.Equal(t, "hello", string(got))
			assert.Equal(t, "iwarp", up.Conn.(*Conn).Device())
			assert.NotEmpty(t, up.Conn.(*Conn).Stats().Declined["shm"])
		})
	}
	assert.Eventually(t, func() bool { return holds(t).areas == 0 }, 5*time.Second, time.Millisecond)
}

// invitation has the server invite a client that offers shm and a channel which
// there is not, and returns its choice.
func invitation(t *testing.T, client net.Conn) wire.Choice {
	t.Helper()
	o := wire.Offers{
		Devices: []wire.Device{wire.DeviceSHM, wire.DeviceIWARP},
		Client:  netip.MustParseAddrPort(client.LocalAddr().String()), Server: netip.MustParseAddrPort(client.RemoteAddr().String()),
		Channel: [32]byte{1, 2, 3}, HasChannel: true,
	}
	o.Host, o.HasHost = listener.HostID([16]byte{1})
	private, err := o.Append(nil)
	require.NoError(t, err)
	_, err = client.Write(hostileFrame(iwarp.RequestKey, 0x40, 1, append(private, hostileHello(false)...)...))
	require.NoError(t, err)
	_, reply := readReply(t, client)
	choice, _, err := wire.ParseChoice(reply)
	require.NoError(t, err)
	assert.False(t, choice.Resume, "it is not the server's to resume")
	return choice
}

// rulesOfSharedMemory are those of the tables here.
func rulesOfSharedMemory() (all []string) {
	for _, r := range shmAnswerRules {
		all = append(all, r.rule)
	}
	for _, r := range shmOpeningRules {
		all = append(all, r.rule)
	}
	return all
}
