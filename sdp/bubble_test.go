package sdp

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestListenersDeadlineSetInABubble does not end the program if another one is set outside, or the
// listener is closed there.
func TestListenersDeadlineSetInABubble(t *testing.T) {
	ln, err := engineListen()
	require.NoError(t, err)
	l := ln.(*Listener)
	inABubble := func() {
		synctest.Test(t, func(t *testing.T) {
			require.NoError(t, l.SetDeadline(time.Now().Add(time.Hour)))
		})
	}
	inABubble()
	require.NoError(t, l.SetDeadline(time.Now().Add(10*time.Millisecond)))
	_, err = l.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	inABubble()
	require.NoError(t, l.Close())
}
