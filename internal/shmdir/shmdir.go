// Package shmdir lets programs of one host meet in a directory that their containers share.
// Abstract Unix sockets belong to one network namespace; socket files do not.
//
// The directory holds three kinds of files, all of them sockets:
//
//   - c-… is the socket of a client that offers a channel. It has a random name, and its file
//     is removed when the server has connected to it.
//   - l-… is the socket of a listener that announces itself.
//   - a-… are further names of that socket (hard links), one for each address that the
//     listener serves, made from a hash of address and port.
//
// Every process that can write to the directory is taken to be hostile. It can remove and
// replace the files, so it can prevent that two programs meet there. It cannot come between
// them:
//
//   - A name that one end tells the other contains the number of the file's inode, which
//     the kernel does not give to another file while the socket is open (see Bind, Connect).
//   - A claim and its answer (see claim.go) prove to each end that the other one has the other
//     end of a TCP connection, before a byte is written to that.
package shmdir

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"time"
)

// Name names a socket in a directory: random bytes, of which its file's name is made, and the
// number of the file's inode.
type Name [16]byte

const randomLen = 8

func (n *Name) file() string { return clientPrefix + hex.EncodeToString(n[:randomLen]) }

func (n *Name) inode() uint64 { return binary.BigEndian.Uint64(n[randomLen:]) }

// What the names of files begin with.
const (
	clientPrefix   = "c-"
	listenerPrefix = "l-"
	addressPrefix  = "a-"
	asidePrefix    = "t-" // a file that is being replaced or removed
)

// addressFile returns the name of the file that announces a listener at a.
func addressFile(a netip.AddrPort) string {
	sum := sha256.Sum256([]byte(bare(a).String()))
	return addressPrefix + hex.EncodeToString(sum[:16])
}

// bare returns a as both ends write it.
func bare(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// announceable reports whether other containers reach this host at a.
func announceable(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast()
}

// ErrNotAnnounced says that no listener is announced at an address.
var ErrNotAnnounced = errors.New("no SDP listener announced at the address")

var errBusy = errors.New("listener has too many unanswered claims")

const (
	// A dialler looks for the answer to its claim lookTimes times, and waits for LookTime
	// between two looks, to which the kernel adds as much. Looks are counted, and not time,
	// because on a busy machine both ends wait for a processor: a look then takes longer.
	LookTime  = 50 * time.Microsecond
	lookTimes = 6
	// lookKnown is how often it looks if the listener has answered lately, until AskWithin is over. If
	// that was in vain, the listener counts as any other for VainTimes as long: others may listen
	// at its address, each of which accepts some of the connections (SO_REUSEPORT).
	lookKnown = 500
	// AskWithin is how long after its claim a dialler may send its Request. The listener waits
	// longer (HoldTime), and takes the Request that arrives meanwhile, with an opening or without.
	AskWithin = 50 * time.Millisecond
	// HoldTime is how long a connection waits for the opening of the claims that fit it. A
	// dialler that is about to send its Request when AskWithin ends may be late by as much. After
	// a wait in vain that took longer than a quarter of it, no claim is answered for VainTimes as long: the
	// connections of other programs, for which a hostile process makes claims, wait for a fiftieth
	// of the time at most, or for that quarter each. Diallers that have given up, and those whose claims
	// fit by chance, say so sooner.
	HoldTime  = 2 * AskWithin
	VainTimes = 50
	// mostWrong answers are for other connections. More are guesses.
	mostWrong = 3
	// knownTime is for how long that counts, and mostKnown bounds the listeners of which it
	// is remembered.
	knownTime = time.Minute
	mostKnown = 1024
)
