package proxy_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	manyConnections = 4000
	// perConnection is how many descriptors a relay counts for a connection: two sockets, and two
	// pipes between plain TCP connections. Connections beyond the limit wait.
	perConnection = 6
	// manyTime is how long everything may take on a busy machine.
	manyTime = 2 * time.Minute
)

// TestSignalWithManyConnections tells two relays to end, while every one of 4,000
// connections through both has bytes on the way. Every stream must end complete.
func TestSignalWithManyConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("missing: time, because -short is set")
	}
	count := affordable(t)
	server := echo(t)
	middle, inner := start(t, "sdp://127.0.0.1:0", "tcp://"+server, "-grace", manyTime.String())
	address, outer := start(t, "tcp://127.0.0.1:0", "sdp://"+middle, "-grace", manyTime.String())

	var up atomic.Int64 // streams of which something has come back
	var all sync.WaitGroup
	ready, told := make(chan struct{}), make(chan struct{})
	wrong := make(chan error, count)
	room := make(chan struct{}, 100) // that dial at a time
	for n := range count {
		all.Go(func() {
			room <- struct{}{}
			c, err := net.DialTimeout("tcp", address, manyTime)
			<-room
			if err == nil {
				err = stream(c.(*net.TCPConn), uint32(n), &up, ready, told)
			}
			if err != nil {
				wrong <- fmt.Errorf("stream %d: %w", n, err)
			}
		})
	}
	require.Eventually(t, func() bool { return int(up.Load()) == count || len(wrong) > 0 }, manyTime, 10*time.Millisecond)
	close(ready)
	require.NoError(t, inner.Signal(syscall.SIGTERM))
	require.NoError(t, outer.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return refused(address) && refused(middle) }, patience, 10*time.Millisecond)
	close(told)
	all.Wait()
	close(wrong)
	for err := range wrong {
		require.NoError(t, err)
	}
	require.Zero(t, outer.Wait().ExitCode())
	require.Zero(t, inner.Wait().ExitCode())
}

// affordable returns how many connections the limit of descriptors allows.
func affordable(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	count := min(manyConnections, int(limit.Max/perConnection)-100)
	if count < manyConnections {
		t.Logf("%d connections, because only %d descriptors are allowed", count, limit.Max)
	}
	require.Positive(t, count)
	return count
}

// echo serves what sends back whatever it receives.
func echo(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

// stream writes one numbered block, when all streams are ready more of them until told, and
// then some more. It requires that all of them come back, and then the end.
func stream(c *net.TCPConn, number uint32, up *atomic.Int64, ready, told <-chan struct{}) error {
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(manyTime)); err != nil {
		return err
	}
	const size = 512
	var written atomic.Int64
	failed := make(chan error, 1)
	// So many blocks are on their way at most: thousands of streams that fill every buffer
	// take minutes to empty them.
	outstanding := make(chan struct{}, 8)
	go func() {
		var b [size]byte
		for n, left := uint32(0), -1; left != 0; n++ {
			select {
			case <-told:
				if left < 0 {
					left = 20
				}
				left--
			default:
			}
			outstanding <- struct{}{}
			fill32(b[:], number, n)
			if _, err := c.Write(b[:]); err != nil {
				failed <- err
				return
			}
			written.Add(size)
			if n == 0 {
				<-ready
			}
		}
		failed <- c.CloseWrite()
	}()
	var got, wanted [size]byte
	read := int64(0)
	for n := uint32(0); ; n++ {
		if _, err := io.ReadFull(c, got[:]); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("after %d bytes: %w", read, err)
		}
		fill32(wanted[:], number, n)
		if !bytes.Equal(got[:], wanted[:]) {
			return fmt.Errorf("block %d is another one", n)
		}
		<-outstanding
		if read += size; n == 0 {
			up.Add(1)
		}
	}
	if err := <-failed; err != nil {
		return err
	}
	if read != written.Load() {
		return fmt.Errorf("%d bytes came back of %d", read, written.Load())
	}
	return nil
}

func fill32(b []byte, number, n uint32) {
	for i := 0; i < len(b); i += 8 {
		binary.BigEndian.PutUint32(b[i:], number)
		binary.BigEndian.PutUint32(b[i+4:], n)
	}
}

func refused(address string) bool {
	c, err := net.Dial("tcp", address)
	if err == nil {
		c.Close()
	}
	return err != nil
}
