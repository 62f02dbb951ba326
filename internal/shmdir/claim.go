package shmdir

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// A dialler announces a TCP connection to the listener, so that both know before the first byte
// that the other one speaks SDP. It does so on a Unix socket (SOCK_SEQPACKET), to which it
// connects through the file that announces the listener:
//
//	dialler  binds its TCP socket, and so knows its port
//	dialler → claim: the address that it connects from, and a commitment to the port
//	dialler  connects over TCP
//	listener accepts the TCP connection, and looks for claims from its address
//	listener → answer: the port that it sees
//	dialler → opening: the key to the commitment, if the port is its own
//	dialler  sends its Request over TCP
//
// Neither can be fooled by a process that has only access to the directory. One that has put
// its socket in the listener's place does not know the port, which is not told before the answer, and
// so gets no Request sent to a program that does not expect it. One that makes claims for
// connections of others cannot open them when it is told the port.
//
// A claim has a hint, four bits made of the port: the listener answers only claims that fit, and has few
// connections of other programs wait for an opening. That leaves a forger one answer in some 1,700.
//
// The listener takes an opening that was sent before it gave up, and an opening cannot be sent
// after that: then the dialler sends nothing over TCP, and both go on with plain TCP. A process
// that passes on what comes may hold back the opening. So the dialler sends its Request soon after
// the claim or not at all, and the listener does not give up before that: see AskWithin.

const (
	claimMagic = "SDPdir1\n"
	keyLen     = 16
	hintMask   = 0x0f
	claimLen   = len(claimMagic) + 16 + sha256.Size + 1
	answerLen  = 2
)

// key opens a commitment to a port.
type key [keyLen]byte

func newKey() (k key) {
	rand.Read(k[:])
	return k
}

// commitment hides a port, and can be opened only to that one.
type commitment [sha256.Size]byte

func (k key) commit(port uint16) commitment {
	return sha256.Sum256(binary.BigEndian.AppendUint16(k[:], port))
}

// opens reports that the commitment was made with this key and this port.
func (c commitment) opens(k key, port uint16) bool {
	want := k.commit(port)
	return hmac.Equal(c[:], want[:])
}

// hint returns a few bits of the port.
func (c commitment) hint(port uint16) byte {
	sum := sha256.Sum256(binary.BigEndian.AppendUint16(c[:], port))
	return sum[0] & hintMask
}

// claimed is what a claim says.
type claimed struct {
	from       netip.Addr
	commitment commitment
	hint       byte
}

func (c *claimed) append(b []byte) []byte {
	from := c.from.As16()
	b = append(append(b, claimMagic...), from[:]...)
	return append(append(b, c.commitment[:]...), c.hint)
}

// parseClaim reads a claim.
func parseClaim(b []byte) (c claimed, ok bool) {
	if len(b) != claimLen || !bytes.HasPrefix(b, []byte(claimMagic)) {
		return claimed{}, false
	}
	b = b[len(claimMagic):]
	c.from = netip.AddrFrom16([16]byte(b)).Unmap()
	copy(c.commitment[:], b[16:])
	c.hint = b[16+sha256.Size]
	return c, c.hint <= hintMask
}

// fits reports that the claim may be for a connection from there.
func (c *claimed) fits(from netip.AddrPort) bool {
	return c.from == from.Addr() && c.hint == c.commitment.hint(from.Port())
}
