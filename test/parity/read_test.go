package parity

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"
)

// readScripts read during a copy whose writer blocks, and copy to writers that read for themselves.
var readScripts = []script{
	{name: "read beside a blocked copy", run: func(r *run) {
		c, s := r.pair()
		w := &blockedWriter{called: make(chan struct{}), release: make(chan struct{})}
		copied := make(chan error, 1)
		go func() {
			_, err := io.Copy(w, c)
			copied <- err
		}()
		_, err := io.WriteString(s, "first")
		check(err)
		<-w.called

		check(c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
		r.note("Read with a deadline", timed(func() error { return readByte(c) }))
		check(c.SetReadDeadline(time.Time{}))
		_, err = io.WriteString(s, "s")
		check(err)
		r.note("Read of later data", timed(func() error { return readByte(c) }))
		read := blocked(func() error { return readByte(c) })
		r.note("Close", timed(c.Close))
		r.note("Read", timed(func() error { return <-read }))
		close(w.release)
		r.note("Copy", timed(func() error { return <-copied }))
		r.note("the peer's Read", timed(func() error { return readByte(s) }))
	}},
	{name: "relay through a buffered writer", run: func(r *run) {
		c, relayed := r.pair()
		onward, s := r.pair()
		// The relay never flushes: bufio.Writer's ReadFrom leaves all to the connection's.
		copied := make(chan error, 1)
		go func() {
			_, err := io.Copy(bufio.NewWriter(onward), bufio.NewReader(relayed))
			copied <- err
		}()
		for range 2 {
			_, err := io.WriteString(c, "a request")
			check(err)
			r.note("Read of a request", timed(func() error {
				_, err := io.ReadFull(s, make([]byte, len("a request")))
				return err
			}))
		}
		check(c.CloseWrite())
		r.note("Copy", timed(func() error { return <-copied }))
	}},
	{name: "copy to a writer that reads", run: func(r *run) {
		c, s := r.pair()
		_, err := io.WriteString(s, "some bytes")
		check(err)
		check(s.Close())
		w := &readingWriter{}
		n, err := io.Copy(w, c)
		r.note("Copy", describe(err))
		r.note("bytes", fmt.Sprint(n))
		r.note("bytes that its ReadFrom has read", fmt.Sprint(w.n))
	}},
	{name: "copy to a writer whose ReadFrom fails", run: func(r *run) {
		c, s := r.pair()
		check(s.SetLinger(0))
		check(s.Close())
		_, err := io.Copy(&readingWriter{}, c)
		r.note("Copy from a connection that was reset", describe(err))
		_, err = io.Copy(&readingWriter{err: io.ErrShortBuffer}, c)
		r.note("Copy to a writer that fails", fmt.Sprint(errors.Is(err, io.ErrShortBuffer)))
		_, err = io.Copy(&readingWriter{err: io.EOF}, c)
		r.note("Copy to a writer that returns EOF", describe(err))
	}},
}

// readingWriter is a writer with a ReadFrom that counts what it reads, and then returns err.
type readingWriter struct {
	n   int64
	err error
}

func (w *readingWriter) Write(b []byte) (int, error) { return len(b), nil }

func (w *readingWriter) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(io.Discard, struct{ io.Reader }{r})
	w.n += n
	if err == nil {
		err = w.err
	}
	return n, err
}

func readByte(c conn) error {
	_, err := c.Read(make([]byte, 1))
	return err
}

// blockedWriter blocks in its first Write.
type blockedWriter struct{ called, release chan struct{} }

func (w *blockedWriter) Write(b []byte) (int, error) {
	close(w.called)
	<-w.release
	return len(b), nil
}
