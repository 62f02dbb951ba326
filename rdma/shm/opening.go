//go:build linux

package shm

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
)

// Two ends open a channel over a Unix socket with these messages:
//
//	dials    → opening:   the name of its invitation, and a nonce
//	listens  → challenge: a nonce, a proof that it has the token, whether it wants reach
//	dials    → response:  its own proof, what it has to say
//	listens  → answer:    what it says, and the memory file
//	dials    → a byte:    whether both can read each other's memory
//
// From then on the socket is the doorbell.
//
// The token itself is never sent here: an end that lacks it can neither answer for the
// other end nor take its place. The end that dials says nothing and allows no
// descriptor before the challenge is proved; the end that listens makes no memory
// before the response is, and takes no descriptor at all.
//
// Where both ends want reach (see reachable), response and answer say where a probe
// lies in the sender's memory, for the other end to read.
const (
	magic        = "SDPshm3\n" // with the layout in it
	nameLen      = 8
	nonceLen     = 16
	proofLen     = sha256.Size
	openingLen   = len(magic) + nameLen + nonceLen
	challengeLen = len(magic) + 1 + nonceLen + proofLen + 2
	responseLen  = proofLen + 1 + 8 + probeLen + 2
	answerLen    = 1 + 8 + probeLen + 2
	mostPrivate  = 255
)

// The flags of challenge, response and answer; the last byte has canRead alone.
const (
	canRead   = 1 << iota // the sender can read the other's memory
	refused               // the text says why there will be no channel
	wantReach             // the sender wants reach
)

// name tells the end that listens which invitation a peer has.
type name [nameLen]byte

// nameOf returns the name of the invitation that the token belongs to. It says nothing
// about the token.
func nameOf(token [16]byte) name { return name(mac(token, "name")) }

// What each end proves.
const (
	dials   = "dials"
	listens = "listens"
)

// proof returns what shows that an end has the token. Both ends have chosen a nonce, so
// it is good for one channel.
func proof(token [16]byte, end string, dialler, listener [nonceLen]byte) []byte {
	return mac(token, end, dialler[:], listener[:])
}

func mac(token [16]byte, text string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, token[:])
	h.Write([]byte(text))
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

func newNonce() (n [nonceLen]byte) {
	rand.Read(n[:])
	return n
}

// opening is what the end that listens reads first.
type opening struct {
	name  name
	nonce [nonceLen]byte
}

func (o *opening) append(b []byte) []byte {
	b = append(b, magic...)
	b = append(b, o.name[:]...)
	return append(b, o.nonce[:]...)
}

func readOpening(conn *net.UnixConn) (o opening, err error) {
	var b [openingLen]byte
	if err := readBytes(conn, b[:]); err != nil {
		return o, err
	}
	if string(b[:len(magic)]) != magic {
		return o, errors.New("shm: the opening is not one")
	}
	copy(o.name[:], b[len(magic):])
	copy(o.nonce[:], b[len(magic)+nameLen:])
	return o, nil
}

// challenge is what the end that dials reads first.
type challenge struct {
	flags byte
	nonce [nonceLen]byte
	proof [proofLen]byte
	text  []byte // why, if it refuses
}

func (c *challenge) append(b []byte) []byte {
	b = append(b, magic...)
	b = append(b, c.flags)
	b = append(b, c.nonce[:]...)
	b = append(b, c.proof[:]...)
	return appendText(b, c.text)
}

func readChallenge(conn *net.UnixConn) (c challenge, err error) {
	var b [challengeLen]byte
	if err := readBytes(conn, b[:]); err != nil {
		return c, err
	}
	if string(b[:len(magic)]) != magic {
		return c, errors.New("shm: the challenge is not one")
	}
	rest := b[len(magic):]
	c.flags = rest[0]
	copy(c.nonce[:], rest[1:])
	copy(c.proof[:], rest[1+nonceLen:])
	if c.text, err = makeText(rest[1+nonceLen+proofLen:]); err != nil {
		return c, err
	}
	if err := readBytes(conn, c.text); err != nil {
		return c, err
	}
	return c, refusal(c.flags, c.text)
}

// response is what the end that dials says when it knows whom it talks to.
type response struct {
	proof   [proofLen]byte
	flags   byte
	address uint64 // of the probe
	probe   probe
	private []byte
}

func (r *response) append(b []byte) []byte {
	b = append(b, r.proof[:]...)
	b = append(b, r.flags)
	b = binary.NativeEndian.AppendUint64(b, r.address)
	b = append(b, r.probe[:]...)
	return appendText(b, r.private)
}

func readResponse(conn *net.UnixConn) (r response, err error) {
	var b [responseLen]byte
	if err := readBytes(conn, b[:]); err != nil {
		return r, err
	}
	copy(r.proof[:], b[:])
	rest := b[proofLen:]
	r.flags, r.address = rest[0], binary.NativeEndian.Uint64(rest[1:])
	copy(r.probe[:], rest[1+8:])
	if r.private, err = makeText(rest[1+8+probeLen:]); err != nil {
		return r, err
	}
	return r, readBytes(conn, r.private)
}

// answer is what comes with the memory file.
type answer struct {
	flags   byte
	address uint64 // of the probe
	probe   probe
	private []byte
}

func (a *answer) append(b []byte) []byte {
	b = append(b, a.flags)
	b = binary.NativeEndian.AppendUint64(b, a.address)
	b = append(b, a.probe[:]...)
	return appendText(b, a.private)
}

// readAnswer reads an answer and the descriptor that comes with it, which the caller
// closes. One that refuses is an error. With an error the descriptors that came are
// closed.
func readAnswer(conn *net.UnixConn) (a answer, fd int, err error) {
	var came files
	defer func() {
		if err == nil && len(came) == 0 {
			err = errors.New("shm: no descriptor came")
		}
		if err == nil {
			fd = came[0]
			return
		}
		if len(came) > 0 {
			closeInBackground(came)
		}
	}()
	var b [answerLen]byte
	if err := readWithFiles(conn, b[:], &came); err != nil {
		return a, -1, err
	}
	a.flags, a.address = b[0], binary.NativeEndian.Uint64(b[1:])
	copy(a.probe[:], b[1+8:])
	if a.private, err = makeText(b[1+8+probeLen:]); err != nil {
		return a, -1, err
	}
	if err := readWithFiles(conn, a.private, &came); err != nil {
		return a, -1, err
	}
	return a, -1, refusal(a.flags, a.private)
}

// appendText appends the length of text, and text.
func appendText(b, text []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// makeText returns room for a text of the length that b begins with.
func makeText(b []byte) ([]byte, error) {
	n := int(binary.NativeEndian.Uint16(b))
	if n > mostPrivate {
		return nil, fmt.Errorf("shm: the peer says %d bytes, at most %d are allowed", n, mostPrivate)
	}
	return make([]byte, n), nil
}

// refusal returns the error that the peer refuses, if it does.
func refusal(flags byte, text []byte) error {
	if flags&refused == 0 {
		return nil
	}
	return fmt.Errorf("shm: the peer refuses: %q", text)
}

// reason is what the peer is told when it is refused.
func reason(err error) []byte {
	text := err.Error()
	return []byte(text[:min(len(text), mostPrivate)])
}

func flag(is bool, bit byte) byte {
	if is {
		return bit
	}
	return 0
}
