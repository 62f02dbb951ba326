package stream

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/gosdp/gosdp/internal/shm"
	"github.com/gosdp/gosdp/test/watchdog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// FuzzSegment: a peer that writes anything into the segment, between this end's calls or during them, spoils the bytes of
// its own connection and nothing else. Each record of data is an operation (1 byte), a word of the page of control or a
// place behind it (2), and a value (8). An odd first byte makes the stores go on, again and again, beside the calls.
func FuzzSegment(f *testing.F) {
	record := func(op byte, word uint16, value uint64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint16([]byte{op}, word), value)
	}
	seed := func(first byte, records ...[]byte) {
		data := []byte{first}
		for _, r := range records {
			data = append(data, r...)
		}
		f.Add(data)
	}
	for first := range byte(2) {
		for word := range uint16(144) { // everything that has a meaning
			seed(first, record(storeWord, word, ^uint64(0)), record(callWrite, 0, 100), record(callRead, 0, 100), record(callVisit, 0, 0))
			seed(first, record(addToWord, word, 1<<40), record(callRead, 0, 90_000), record(callWrite, 0, 90_000))
			for _, head := range []uint16{48, 96} { // a change to an area that there is not, and bytes behind it
				seed(first, record(storeWord, word, 8<<2|3), record(addToWord, head, 5000), record(callRead, 0, 90_000), record(callRead, 0, 90_000))
			}
			seed(first, record(callWrite, 0, 9), record(storeWord, word, 12), record(peerLeaves, 0, 0), record(callVisit, 0, 0))
			seed(first, record(addToWord, word, 5000), record(callRead, 0, 10), record(callWrite, 0, 70_000), record(callRead, 0, 70_000))
		}
		seed(first, record(callWrite, 0, 9), record(scribble, 100, 1), record(callLeave, 0, 0), record(callVisit, 0, 0), record(callRead, 0, 1))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer watchdog.Start()()
		hostileSegment(t, data)
	})
}

const (
	storeWord = iota
	addToWord
	scribble
	callWrite
	callRead
	callVisit
	callLeave
	peerLeaves
	hostileOps
)

func hostileSegment(t *testing.T, data []byte) {
	if len(data) == 0 || len(data) > 1+40*11 {
		return
	}
	a, b := tcpPair(t)
	memory := attachOpenly(t, a, b)
	move(t, a, b)
	var stores []func()
	perform := func(r []byte) {
		word, value := binary.LittleEndian.Uint16(r[1:]), binary.LittleEndian.Uint64(r[3:])
		at := (*atomic.Uint64)(unsafe.Pointer(&memory[int(word)%512*8]))
		buf := make([]byte, int(value%100_000)+8)
		buf, canary := buf[:len(buf)-8], buf[len(buf)-8:]
		var n int
		var err error
		switch r[0] % hostileOps {
		case storeWord:
			stores = append(stores, func() { at.Store(value) })
			at.Store(value)
		case addToWord:
			stores = append(stores, func() { at.Add(value) })
			at.Add(value)
		case scribble:
			copy(memory[4096+int(word)*64%(len(memory)-8192):], r)
		case callWrite:
			a.SetWriteDeadline(time.Now().Add(time.Millisecond))
			n, err = a.Write(buf)
		case callRead:
			a.SetReadDeadline(time.Now().Add(time.Millisecond))
			n, err = a.Read(buf)
		case callVisit:
			a.Visit()
		case callLeave:
			a.Leave()
		case peerLeaves:
			b.Leave()
		}
		assert.LessOrEqual(t, n, len(buf))
		assert.Equal(t, make([]byte, 8), canary, "bytes behind the buffer")
		if err != nil && err != io.EOF && !errors.Is(err, os.ErrDeadlineExceeded) {
			assert.True(t, errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE), "%v", err)
		}
	}
	stop := make(chan struct{})
	var hostile sync.WaitGroup
	for records := data[1:]; len(records) >= 11; records = records[11:] {
		perform(records[:11])
		if data[0]%2 == 1 && len(stores) == 1 && records[0]%hostileOps <= addToWord {
			store := stores[0]
			hostile.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						store()
					}
				}
			})
		}
	}
	a.Close()
	b.Close()
	close(stop)
	hostile.Wait()
	other, peer := linkedPair(t) // others go on
	move(t, other, peer)
}

// attachOpenly is attach for a test that writes into the segment.
func attachOpenly(t *testing.T, a, b *Conn) (memory []byte) {
	t.Helper()
	made, err := shm.New(shm.Peer{})
	require.NoError(t, err)
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(made.File(), &st))
	memory, err = unix.Mmap(made.File(), 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(memory) })
	opened, err := shm.Open(shm.Peer{}, made.File())
	require.NoError(t, err)
	made.Sent()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, a.Attach(made, fds[0]))
	require.NoError(t, b.Attach(opened, fds[1]))
	return memory
}
