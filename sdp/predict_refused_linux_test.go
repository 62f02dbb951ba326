package sdp

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestWriteOfSecretMemory: a Write from memory that the process itself can read, but that the
// kernel lets no system call read, arrives as with package net.
func TestWriteOfSecretMemory(t *testing.T) {
	fd, err := unix.MemfdSecret(0)
	if err != nil {
		t.Skip("missing: memfd_secret: ", err)
	}
	defer unix.Close(fd)
	require.NoError(t, unix.Ftruncate(fd, predictSize))
	b, err := unix.Mmap(fd, 0, predictSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Skip("missing: memory that may be locked (RLIMIT_MEMLOCK): ", err)
	}
	defer unix.Munmap(b)
	c, s := predictingPair(t)
	exchange(t, c, s, 4, predictSize)
	stuck := time.AfterFunc(time.Minute, func() { c.Close(); s.Close() }) // with deadlines all would be copied
	defer stuck.Stop()
	for i := range 10 {
		copy(b, streamAt(i, predictSize))
		wrote := make(chan error, 1)
		go func() {
			_, err := c.Write(b)
			wrote <- err
		}()
		got := make([]byte, predictSize)
		_, err = io.ReadFull(s, got)
		require.NoError(t, err, "%d: %+v", i, c.Stats().Traffic)
		require.NoError(t, <-wrote)
		require.NoError(t, checkStream(i, got))
		_, err = s.Write(got)
		require.NoError(t, err)
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
	}
}
