//go:build !linux

package handshake

import (
	"errors"
	"net"
	"time"
)

// awaitFirst is not there: this system does not tell whether a connection has received a byte
// that the program has read.
func awaitFirst(net.Conn, time.Duration) (func() bool, error) { return nil, errors.ErrUnsupported }
