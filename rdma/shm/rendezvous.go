//go:build linux

package shm

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"github.com/gosdp/gosdp/rdma"
)

// Two ends open a channel in these steps. The client listens on an abstract Unix socket with a
// new random name, and sends a ticket with its Request over TCP: a token, the name, and the address
// of a probe, if it wants reach (see reachable).
//
//	server  connects to the socket, checks the client's credentials, and reads the client's probe
//	server → meeting: proof that it has the token, and the address of its probe
//	server  sends its Reply over TCP
//	client  accepts, checks the server's credentials, closes the listening socket, and reads the
//	        server's probe
//	client → decision: proof that it has the token, whether there is reach, and the memory file
//	server  maps the memory
//
// From then on the connection is the doorbell. If the client closes it instead of sending a
// decision, the two ends continue as plain TCP on their TCP connection.
//
// When the Reply arrives, the meeting has arrived too, so the client waits for nothing.
// Only the process that received the Request has the token. If the user of the other end may
// not share memory with this one, an end closes the connection before it writes or reads a
// byte. Any process can connect to the client's socket, so the client accepts no descriptors.
// Only the client can send one to the server.
const (
	magic       = "SDPshm5\n" // contains the layout
	tokenLen    = 16
	nameLen     = 16
	proofLen    = sha256.Size
	sightLen    = 1 + 8 + probeLen
	meetingLen  = len(magic) + proofLen + sightLen
	decisionLen = proofLen + 1
)

// token is the part of a ticket that only the two ends know.
type token [tokenLen]byte

// newTicket returns the ticket of a new channel, whose client does not want reach.
func newTicket() (t rdma.Ticket) {
	rand.Read(t[:tokenLen+nameLen])
	return t
}

// setProbe adds the address of the client's probe to a ticket.
func setProbe(t *rdma.Ticket, address uint64) {
	binary.NativeEndian.PutUint64(t[tokenLen+nameLen:], address)
}

// probeAddress returns the address of the client's probe; 0: it does not want reach.
func probeAddress(t *rdma.Ticket) uint64 { return binary.NativeEndian.Uint64(t[tokenLen+nameLen:]) }

// prefix is the beginning of every socket's name.
const prefix = "@sdp-"

// halves returns the token and the name of the socket.
func halves(t rdma.Ticket) (k token, socket string) {
	return token(t[:tokenLen]), prefix + hex.EncodeToString(t[tokenLen:][:nameLen])
}

// The messages of the proofs.
const (
	serves  = "serves"
	decides = "decides"
	shows   = "shows"
)

// proof returns the proof that an end has the token, which is valid for one channel.
func (k token) proof(end string) []byte {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte(end))
	return h.Sum(nil)
}

// errUnproved means that the peer does not have the token.
var errUnproved = errors.New("shm: peer failed to prove that it has the token")

// check returns nil if b, which has proofLen bytes, is the proof of an end.
func (k token) check(end string, b []byte) error {
	if !hmac.Equal(b, k.proof(end)) {
		return errUnproved
	}
	return nil
}

// probe returns what the client's probe contains.
func (k token) probe() probe { return probe(k.proof(shows)[:probeLen]) }

// sight is the part of the meeting that is about reach.
type sight struct {
	flags   byte
	address uint64 // of the server's probe
	probe   probe
}

// canRead, in a meeting, means that the server has read the client's probe, and says where its own
// is; in a decision, that the client has read that, so that there is reach.
const canRead = 1

func (s *sight) append(b []byte) []byte {
	b = append(b, s.flags)
	b = binary.NativeEndian.AppendUint64(b, s.address)
	return append(b, s.probe[:]...)
}

func parseSight(b []byte) (s sight) {
	s.flags, s.address = b[0], binary.NativeEndian.Uint64(b[1:])
	copy(s.probe[:], b[1+8:])
	return s
}

// sightOf returns the sight of a server that has read the client's probe, and has this one.
func sightOf(p *probe) sight { return sight{canRead, p.address(), *p} }

// visible reports whether the sender's probe is at its address in the process pid, so that this
// end can read that memory.
func (s *sight) visible(pid int) bool { return try(pid, s.address, s.probe[:]) }

// meeting returns the server's message.
func (k token) meeting(s *sight) []byte {
	b := append(append([]byte(nil), magic...), k.proof(serves)...)
	return s.append(b)
}

// readMeeting reads a meeting from a socket. It does not wait. If a descriptor comes with the
// message, it fails and leaves both in the socket.
func (k token) readMeeting(socket int) (sight, error) {
	var b [meetingLen]byte
	n, err := receive(socket, b[:])
	switch {
	case err != nil:
	case n < len(b):
		err = errShort
	case string(b[:len(magic)]) != magic:
		err = errors.New("shm: malformed rendezvous message")
	default:
		err = k.check(serves, b[len(magic):][:proofLen])
	}
	if err != nil {
		return sight{}, err
	}
	return parseSight(b[len(magic)+proofLen:]), nil
}

// decision returns the client's message when it takes the channel. flags are canRead, or 0.
func (k token) decision(flags byte) []byte { return append(k.proof(decides), flags) }

// readDecision reads a decision from a socket, and the descriptor that comes with it, which
// the caller must close. If it returns an error, it has closed all descriptors. It does not
// wait, and returns EAGAIN if nothing has arrived.
func (k token) readDecision(socket int) (flags byte, file int, err error) {
	var b [decisionLen]byte
	came, err := readWithFiles(socket, b[:])
	if err == nil {
		err = k.check(decides, b[:proofLen])
	}
	if err == nil && len(came) == 0 {
		err = errors.New("shm: decision message without a file descriptor")
	}
	if err != nil {
		if len(came) > 0 {
			closeInBackground(came)
		}
		return 0, -1, err
	}
	return b[proofLen], came[0], nil
}
