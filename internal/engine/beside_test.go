package engine

import (
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadBesideWriteTo: each byte is read once, by one of them, although WriteTo gives back what its
// writer does not accept.
func TestReadBesideWriteTo(t *testing.T) {
	a, b := pair(t)
	const size = 60 << 10
	times := 3000
	if testing.Short() {
		times = 100
	}
	piece, sum := make([]byte, size), 0
	for i := range piece {
		piece[i] = byte(i * 7)
		sum += int(piece[i])
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		for range times {
			if _, err := a.Write(piece); !assert.NoError(t, err) {
				return
			}
		}
		assert.NoError(t, a.CloseWrite())
	})
	var got struct {
		sync.Mutex
		bytes, sum int
	}
	count := func(p []byte) {
		got.Lock()
		defer got.Unlock()
		got.bytes += len(p)
		for _, x := range p {
			got.sum += int(x)
		}
	}
	all.Go(func() {
		for {
			_, err := b.WriteTo(writerFunc(func(p []byte) (int, error) {
				p = p[:max(1, len(p)-1)]
				count(p)
				return len(p), io.ErrShortWrite
			}))
			if err == nil {
				return
			}
			if !errors.Is(err, io.ErrShortWrite) {
				t.Error(err)
				return
			}
		}
	})
	p := make([]byte, size)
	for {
		n, err := b.Read(p)
		count(p[:n])
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}
	all.Wait()
	assert.Equal(t, times*size, got.bytes)
	assert.Equal(t, times*sum, got.sum)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestReadGetsWhatWriteToReturns although it waits already.
func TestReadGetsWhatWriteToReturns(t *testing.T) {
	t.Setenv("SDP_ZCOPY_THRESHOLD", "-1") // or the Read may fetch a part
	a, b := pair(t)
	_, err := a.Write([]byte("hello"))
	require.NoError(t, err)
	read := make(chan string)
	_, err = b.WriteTo(writerFunc(func(p []byte) (int, error) {
		go func() {
			p := make([]byte, 10)
			n, err := b.Read(p)
			assert.NoError(t, err)
			read <- string(p[:n])
		}()
		require.Eventually(t, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.poll.leader == parked && b.poll.background == absent
		}, soon, time.Millisecond)
		return 0, io.ErrShortWrite
	}))
	require.ErrorIs(t, err, io.ErrShortWrite)
	select {
	case got := <-read:
		assert.Equal(t, "hello", got)
	case <-time.After(10 * time.Second):
		t.Error("Read still waits")
	}
}
