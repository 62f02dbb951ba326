package listener

import (
	"net"
	"os"
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

// untimely is a kernel's listener whose Accept has yet to notice its deadline.
type untimely struct{ *fake }

func (untimely) SetDeadline(time.Time) error { return nil }

// TestDeadlineIsRemovedLate: the program removes the deadline that has ended an Accept before that has returned.
func TestDeadlineIsRemovedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := untimely{newFake()}
		l := prepare(f, testConfig(), 8)
		l.kernel = f
		l.start()
		accepted := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			accepted <- err
		}()
		synctest.Wait()
		require.NoError(t, l.SetDeadline(past))
		synctest.Wait()
		require.NoError(t, l.SetDeadline(time.Time{}))
		f.next <- os.ErrDeadlineExceeded
		assert.Equal(t, os.ErrDeadlineExceeded, <-accepted)
		l.Close()
	})
}
