package listener

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lateFake gives out one more connection when it has been closed, as a kernel does that
// had begun to.
type lateFake struct {
	*fake
	last net.Conn
}

func (f *lateFake) Accept() (net.Conn, error) {
	c, err := f.fake.Accept()
	if err == net.ErrClosed && f.last != nil {
		time.Sleep(time.Millisecond)
		c, f.last = f.last, nil
		return c, nil
	}
	return c, err
}

// TestCloseGivesOutWhatIsBeingAccepted to an Accept that waits.
func TestCloseGivesOutWhatIsBeingAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := plainPipe()
		defer client.Close()
		l := New(&lateFake{newFake(), server}, testConfig())
		accepted := make(chan error, 1)
		go func() {
			in, err := l.Accept()
			if err == nil {
				in.Discard()
			}
			accepted <- err
		}()
		synctest.Wait()
		l.Close()
		assert.NoError(t, <-accepted)
		_, err := l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
	})
}
