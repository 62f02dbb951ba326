// Package hmac has the parts of package crypto/hmac that the library uses. SHA-256 is the only
// hash.
package hmac

import "internal/gosdp/sha256"

// HMAC is an HMAC that is being computed.
type HMAC struct {
	outer []byte
	inner *sha256.Digest
}

// New returns the HMAC of an empty message.
func New(_ func() *sha256.Digest, key []byte) *HMAC {
	if len(key) > sha256.BlockSize {
		sum := sha256.Sum256(key)
		key = sum[:]
	}
	ipad, opad := make([]byte, sha256.BlockSize), make([]byte, sha256.BlockSize)
	copy(ipad, key)
	copy(opad, key)
	for i := range ipad {
		ipad[i] ^= 0x36
		opad[i] ^= 0x5c
	}
	h := &HMAC{outer: opad, inner: sha256.New()}
	h.inner.Write(ipad)
	return h
}

// Write adds bytes to the message.
func (h *HMAC) Write(p []byte) (int, error) { return h.inner.Write(p) }

// Sum appends the HMAC.
func (h *HMAC) Sum(b []byte) []byte {
	outer := sha256.New()
	outer.Write(h.outer)
	outer.Write(h.inner.Sum(nil))
	return outer.Sum(b)
}

// Equal compares in constant time.
func Equal(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	var differs byte
	for i := range a {
		differs |= a[i] ^ b[i]
	}
	return differs == 0
}
