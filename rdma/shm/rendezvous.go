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

// Two ends open a channel like this. The client listens on an abstract Unix socket of a
// name that was never used before, and shows the ticket with its Request over TCP: half of
// it is the name, half a token.
//
//	server  connects to the socket, and looks whose it is
//	server → meeting: proof that it has the token
//	server  sends its Reply over TCP
//	client  accepts, looks whose it is, and closes the socket that listens
//	client → decision: proof that it has the token, and the memory file
//	server  maps the memory
//
// From then on the connection is the doorbell. A client that closes it instead goes on as
// plain TCP, over the connection that the two have.
//
// When the Reply has come, all that the server says here is there: the client waits for
// nothing. A process that is not the one that the Request went to has no token; a user who
// may not share memory with the other end is turned away before a byte is written or read.
// Anybody can connect to the client's socket, so the client takes no descriptor; nobody but
// the client can send one to the server.
//
// Where both ends want reach (see reachable), meeting and decision say where a probe lies
// in the sender's memory, for the other end to read, and the server has the last word.
const (
	magic       = "SDPshm4\n" // with the layout in it
	tokenLen    = 16
	proofLen    = sha256.Size
	sightLen    = 1 + 8 + probeLen
	meetingLen  = len(magic) + proofLen + sightLen
	decisionLen = proofLen + sightLen
)

// token is the half of a ticket that is secret, and known to the two ends alone.
type token [tokenLen]byte

// newTicket returns one for a channel that begins.
func newTicket() (t rdma.Ticket) {
	rand.Read(t[:])
	return t
}

// prefix is what the names of all sockets begin with.
const prefix = "@sdp-"

// halves returns the token, and the name of the socket.
func halves(t rdma.Ticket) (k token, socket string) {
	return token(t[:tokenLen]), prefix + hex.EncodeToString(t[tokenLen:])
}

// What each end proves.
const (
	serves  = "serves"
	decides = "decides"
)

// proof returns what shows that an end has the token, which is good for one channel.
func (k token) proof(end string) []byte {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte(end))
	return h.Sum(nil)
}

// errUnproved says that the peer is not the one that has the token.
var errUnproved = errors.New("shm: the peer does not have the token")

// check returns nil if b, of proofLen bytes, is the proof.
func (k token) check(end string, b []byte) error {
	if !hmac.Equal(b, k.proof(end)) {
		return errUnproved
	}
	return nil
}

// sight is what an end says about reach.
type sight struct {
	flags   byte
	address uint64 // of the probe
	probe   probe
}

const (
	wantReach = 1 << iota // the sender wants reach, and says where its probe is
	canRead               // the sender can read the other's memory
)

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

// where says where the probe lies.
func (s *sight) where(p *probe) { s.flags, s.address, s.probe = s.flags|wantReach, p.address(), *p }

// visible reports that the sender's probe is where it says, in the process: this end can
// read its memory.
func (s *sight) visible(pid int) bool { return try(pid, s.address, s.probe[:]) }

// meeting is what the server says first.
func (k token) meeting(s *sight) []byte {
	b := append(append([]byte(nil), magic...), k.proof(serves)...)
	return s.append(b)
}

// readMeeting reads it from a socket. It waits for nothing, and fails, and leaves the
// descriptor where it is, if one comes with it.
func (k token) readMeeting(socket int) (sight, error) {
	var b [meetingLen]byte
	n, err := receive(socket, b[:])
	switch {
	case err != nil:
	case n < len(b):
		err = errShort
	case string(b[:len(magic)]) != magic:
		err = errors.New("shm: what came is no meeting")
	default:
		err = k.check(serves, b[len(magic):][:proofLen])
	}
	if err != nil {
		return sight{}, err
	}
	return parseSight(b[len(magic)+proofLen:]), nil
}

// decision is what the client says when it takes the channel.
func (k token) decision(s *sight) []byte { return s.append(k.proof(decides)) }

// readDecision reads it from a socket, and the descriptor that comes with it, which the
// caller closes. With an error the descriptors that came are closed. EAGAIN: nothing has
// come; it waits for nothing.
func (k token) readDecision(socket int) (s sight, file int, err error) {
	var b [decisionLen]byte
	came, err := readWithFiles(socket, b[:])
	if err == nil {
		err = k.check(decides, b[:proofLen])
	}
	if err == nil && len(came) == 0 {
		err = errors.New("shm: no descriptor came")
	}
	if err != nil {
		if len(came) > 0 {
			closeInBackground(came)
		}
		return sight{}, -1, err
	}
	return parseSight(b[proofLen:]), came[0], nil
}

func flag(is bool, bit byte) byte {
	if is {
		return bit
	}
	return 0
}
