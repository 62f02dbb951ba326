package wire

import (
	"crypto/hmac"
	"crypto/sha256"
)

const (
	saltLen   = 16
	proofLen  = 16 // bytes of an HMAC-SHA256 that are sent
	hostIDLen = saltLen + proofLen
)

// HostID lets two ends find out whether they are on one host, without revealing the host to
// others: a hash under a salt that is new for every connection. It is this project's own.
type HostID struct {
	Salt  [saltLen]byte  // random
	Proof [proofLen]byte // HMAC-SHA256(Salt, host), its first half
}

// NewHostID returns the HostID under salt. host must be the same string in all programs on this
// host, and in no others: the kernel's boot id, a zero byte and the network namespace.
func NewHostID(salt [16]byte, host string) HostID {
	return HostID{Salt: salt, Proof: prove(salt, host)}
}

// SameHost reports whether h was made on this host.
func (h HostID) SameHost(host string) bool {
	want := prove(h.Salt, host)
	return hmac.Equal(h.Proof[:], want[:])
}

func prove(salt [saltLen]byte, host string) [proofLen]byte {
	mac := hmac.New(sha256.New, salt[:])
	mac.Write([]byte(host))
	return [proofLen]byte(mac.Sum(nil))
}
