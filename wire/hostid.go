package wire

import (
	"crypto/hmac"
	"crypto/sha256"
)

const (
	saltLen   = 16
	proofLen  = 16 // bytes of an HMAC-SHA256 that are sent
	hostIDLen = saltLen + 2*proofLen
)

// HostID lets two ends find out whether they are on one host, and in one pid namespace,
// without revealing the host to others. It consists of hashes under a salt that is new for
// every connection. It is this project's own.
type HostID struct {
	Salt [saltLen]byte  // random
	Host [proofLen]byte // HMAC-SHA256(Salt, host), its first half
	PID  [proofLen]byte // HMAC-SHA256(Salt, pid namespace), its first half
}

// NewHostID returns the HostID under salt. host must be the same string in all
// programs that can share memory with this one, and in no others: the kernel's boot
// id, a zero byte and the network namespace.
func NewHostID(salt [16]byte, host, pidNamespace string) HostID {
	return HostID{Salt: salt, Host: prove(salt, host), PID: prove(salt, pidNamespace)}
}

// SameHost reports whether h was made on this host.
func (h HostID) SameHost(host string) bool {
	want := prove(h.Salt, host)
	return hmac.Equal(h.Host[:], want[:])
}

// SamePID reports whether h was made in this pid namespace.
func (h HostID) SamePID(pidNamespace string) bool {
	want := prove(h.Salt, pidNamespace)
	return hmac.Equal(h.PID[:], want[:])
}

func prove(salt [saltLen]byte, secret string) [proofLen]byte {
	mac := hmac.New(sha256.New, salt[:])
	mac.Write([]byte(secret))
	return [proofLen]byte(mac.Sum(nil))
}
