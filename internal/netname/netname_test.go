package netname

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachNameHasItsID(t *testing.T) {
	for id, name := range names {
		require.Equal(t, ID(id), Of(name))
		require.Equal(t, name, ID(id).String())
	}
	require.Equal(t, Unnamed, Of("udp"))
}

func TestOpErrorReplacesTheInnerOperationAndNetwork(t *testing.T) {
	inner := &net.OpError{Op: "read", Net: "tcp", Err: io.ErrUnexpectedEOF}
	err := OpError("sdp", "dial", nil, nil, inner)
	require.Equal(t, &net.OpError{Op: "dial", Net: "sdp", Err: io.ErrUnexpectedEOF}, err)
	require.Equal(t, "tcp", inner.Net, "the inner error has changed")
	require.Equal(t, io.ErrUnexpectedEOF, Cause(err))
	require.Equal(t, io.EOF, Cause(io.EOF))
}
