// Package rand is a small replacement for the parts of package crypto/rand that the library uses.
package rand

import (
	"internal/syscall/unix"
	"syscall"
)

// Read fills b with random bytes from the kernel. It never fails, but ends the program if
// the kernel has none.
func Read(b []byte) (int, error) {
	for got := 0; got < len(b); {
		n, err := unix.GetRandom(b[got:min(len(b), got+256)], 0)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			panic("gosdp: getrandom: " + err.Error())
		default:
			got += n
		}
	}
	return len(b), nil
}

// Text returns 26 random characters, as that of package crypto/rand does.
func Text() string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	b := make([]byte, 26)
	Read(b)
	for i := range b {
		b[i] = alphabet[b[i]%32]
	}
	return string(b)
}
