package traffic

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tcp returns both ends of a TCP connection, over which the sessions must also work.
func tcp(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	a, err = net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	b, err = ln.Accept()
	require.NoError(t, err)
	return a, b
}

// TestSessionsAgree uses no resets, because over TCP only the writer may notice one.
func TestSessionsAgree(t *testing.T) {
	for seed := range uint64(40) {
		a, b := tcp(t)
		var serving sync.WaitGroup
		var served Result
		serving.Go(func() {
			var err error
			served, err = Serve(b)
			assert.NoError(t, err)
		})
		got, err := Client(a, Spec{Seed: seed, MaxBytes: 1 << 20, Deadlines: true})
		assert.NoError(t, err)
		serving.Wait()
		assert.Equal(t, got.Sent, served.Got)
		assert.Equal(t, got.Got, served.Sent)
	}
}

// wrongConn makes one byte wrong, or ends the stream early.
type wrongConn struct {
	*net.TCPConn
	at, off int
	early   bool
}

func (c *wrongConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if i := c.at - c.off; i >= 0 && i < n {
		if c.early {
			return i, io.EOF
		}
		b[i]++
	}
	c.off += n
	return n, err
}

func TestWrongBytesAreNoticed(t *testing.T) {
	for _, at := range []int{0, 1, 1000} {
		for _, early := range []bool{false, true} {
			a, b := tcp(t)
			go Serve(b)
			_, err := Client(&wrongConn{TCPConn: a.(*net.TCPConn), at: at, early: early}, Spec{Seed: 3, MaxBytes: 100_000})
			if early {
				var end *EarlyEndError
				assert.ErrorAs(t, err, &end, "byte %d", at)
				continue
			}
			var wrong *WrongError
			assert.ErrorAs(t, err, &wrong, "byte %d", at)
		}
	}
}

func TestExcess(t *testing.T) {
	before := Held{Goroutines: 3, Descriptors: 5, Memory: 100}
	assert.Empty(t, Held{Goroutines: 2, Descriptors: 5, Memory: 110}.Excess(before, 10))
	assert.Contains(t, Held{Goroutines: 4, Descriptors: 5}.Excess(before, 10), "4 goroutines")
	assert.Contains(t, Held{Memory: 111}.Excess(before, 10), "111 bytes of memory")
}
