package stream

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// restlessPair returns a pair that moves as soon as it can, and comes home every few calls.
func restlessPair(t testing.TB) (a, b *Conn) {
	t.Helper()
	withSelf(t)
	a, b = tcpPair(t)
	p := &Policy{Restless: true}
	a.Move(true, p)
	b.Move(false, p)
	return a, b
}

// chatter makes both ends exchange small messages on other goroutines than the test's until one of them fails, so
// that a pair moves although the test only writes: b's writes go to a.
func chatter(t testing.TB, a, b *Conn) (stop func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if _, err := b.Write([]byte("x")); err != nil {
				return
			}
		}
	})
	wg.Go(func() { io.Copy(io.Discard, struct{ io.Reader }{a}) })
	return func() { a.Close(); b.Close(); wg.Wait() }
}

// sources are readers of the given bytes.
var sources = map[string]func(t *testing.T, data []byte) io.Reader{
	"memory": func(t *testing.T, data []byte) io.Reader { return struct{ io.Reader }{bytes.NewReader(data)} },
	"file":   func(t *testing.T, data []byte) io.Reader { return fileOf(t, data) },
	"part of a file": func(t *testing.T, data []byte) io.Reader {
		return io.LimitReader(fileOf(t, append(bytes.Clone(data), "more"...)), int64(len(data)))
	},
	"pipe": func(t *testing.T, data []byte) io.Reader {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		go func() { w.Write(data); w.Close() }()
		t.Cleanup(func() { r.Close() })
		return r
	},
	"TCP": func(t *testing.T, data []byte) io.Reader {
		a, b := tcpPair(t)
		go func() { a.Write(data); a.Close() }()
		return b.tcp
	},
	"Unix": func(t *testing.T, data []byte) io.Reader {
		ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		require.NoError(t, err)
		defer ln.Close()
		d, err := net.Dial("unix", ln.Addr().String())
		require.NoError(t, err)
		c, err := ln.Accept()
		require.NoError(t, err)
		go func() { d.Write(data); d.Close() }()
		t.Cleanup(func() { c.Close() })
		return c
	},
	"moving connection": func(t *testing.T, data []byte) io.Reader {
		a, b := restlessPair(t)
		go func() { a.Write(data); a.Close() }()
		return b
	},
}

func fileOf(t *testing.T, data []byte) *os.File {
	name := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(name, data, 0o600))
	f, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// TestCopies: io.Copy and WriteBuffers transfer everything, while the connection moves and comes home.
func TestCopies(t *testing.T) {
	data := pattern(1, 5<<20+17)
	var moved uint64
	for name, from := range sources {
		for _, moves := range []bool{false, true} {
			for _, direct := range []bool{false, true} {
				a, b := tcpPair(t)
				stop := func() {}
				if moves {
					a, b = restlessPair(t)
					stop = chatter(t, a, b)
				}
				done := make(chan error)
				go func() {
					src, dst := from(t, data), io.Writer(a)
					var n int64
					var err error
					if direct {
						n, err = a.ReadFrom(src)
					} else {
						n, err = io.Copy(dst, src)
					}
					assert.EqualValues(t, len(data), n)
					a.CloseWrite()
					done <- err
				}()
				var got bytes.Buffer
				n, err := b.WriteTo(struct{ io.Writer }{&got})
				assert.NoError(t, err)
				assert.EqualValues(t, len(data), n)
				assert.True(t, bytes.Equal(data, got.Bytes()), "%s, moves %t", name, moves)
				assert.NoError(t, <-done)
				_, written := a.Totals()
				assert.EqualValues(t, len(data), written)
				read, _ := b.Totals()
				assert.EqualValues(t, len(data), read)
				stop()
				moved += a.Moves() + b.Moves()
			}
		}
	}
	assert.Positive(t, moved)
}

// TestWriteBuffers: slices of all sizes arrive in order, those of other Writes not between them, and v is consumed.
func TestWriteBuffers(t *testing.T) {
	for _, moves := range []bool{false, true} {
		a, b := tcpPair(t)
		stop := func() {}
		if moves {
			a, b = restlessPair(t)
			for !a.moved() {
				say(t, a, b, "ping")
				say(t, b, a, "pong")
			}
			stop = chatter(t, a, b)
		}
		r := rand.New(rand.NewPCG(1, 2))
		var wg sync.WaitGroup
		const rounds = 30
		total := 0
		for id := range byte(2) { // each writes runs of its number, and the length of the run before it
			for range rounds {
				var v net.Buffers
				size := 0
				for range 1 + r.IntN(40) {
					k := r.IntN(300)
					switch r.IntN(20) {
					case 0:
						k = r.IntN(3 << 20)
					case 1:
						k = 0
					}
					size += k
					v = append(v, bytes.Repeat([]byte{id}, k))
				}
				head := []byte{0xff, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}
				v = append(net.Buffers{head, {}}, v...)
				total += size + len(head)
				wg.Go(func() {
					n, err := a.WriteBuffers(&v)
					assert.NoError(t, err)
					assert.EqualValues(t, size+len(head), n)
					assert.Empty(t, v)
				})
			}
		}
		go func() { wg.Wait(); a.CloseWrite() }()
		all, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Len(t, all, total)
		for len(all) > 0 {
			require.EqualValues(t, 0xff, all[0])
			size := int(all[1])<<24 | int(all[2])<<16 | int(all[3])<<8 | int(all[4])
			run := all[5:][:size]
			if size > 0 {
				require.Equal(t, size, bytes.Count(run, run[:1]), "another Write's bytes are in between")
			}
			all = all[5+size:]
		}
		stop()
	}
}

// TestGivesBack: after ReadFrom has failed, the file is at the first byte that was not written.
func TestGivesBack(t *testing.T) {
	data := pattern(3, 24<<20)
	for _, moved := range []bool{false, true} {
		for _, limited := range []bool{false, true} {
			a, b := linkedPair(t)
			if moved {
				move(t, a, b)
			} else {
				bringHome(t, a, b)
			}
			f := fileOf(t, data)
			src := io.Reader(f)
			limit := &io.LimitedReader{R: f, N: int64(len(data))}
			if limited {
				src = limit
			}
			var n int64
			done := make(chan error)
			go func() {
				var err error
				n, err = a.ReadFrom(src)
				done <- err
			}()
			await(t, b)
			a.SetWriteDeadline(past)
			err := <-done
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			var op *net.OpError
			require.True(t, errors.As(err, &op))
			assert.Equal(t, "readfrom", op.Op)
			at, err := f.Seek(0, io.SeekCurrent)
			require.NoError(t, err)
			assert.Equal(t, n, at)
			if limited {
				assert.Equal(t, int64(len(data))-n, limit.N)
			}
			go func() {
				a.SetWriteDeadline(epoch.AddDate(10, 0, 0))
				_, err := a.ReadFrom(src)
				assert.NoError(t, err)
				a.CloseWrite()
			}()
			all, err := io.ReadAll(b)
			assert.NoError(t, err)
			assert.True(t, bytes.Equal(data, all))
		}
	}
}

// TestReadFromTellsOfAReset: the kernel tells one call that a source was reset, and the next ones of an end.
func TestReadFromTellsOfAReset(t *testing.T) {
	a, b := tcpPair(t)
	from, peer := tcpPair(t)
	peer.Write([]byte("word"))
	failed := make(chan error, 1)
	go func() {
		_, err := a.ReadFrom(from.tcp)
		failed <- err
	}()
	_, err := io.ReadFull(b, make([]byte, len("word")))
	require.NoError(t, err)
	require.NoError(t, peer.SetLinger(0))
	require.NoError(t, peer.Close())
	require.ErrorIs(t, <-failed, syscall.ECONNRESET)
}
