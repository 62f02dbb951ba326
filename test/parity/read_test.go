package parity

import (
	"io"
	"time"
)

// readScripts read during a copy whose writer blocks.
var readScripts = []script{
	{name: "read beside a blocked copy", waits: true, run: func(r *run) {
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
		r.note("Read with a deadline", timedFor(3*time.Second, func() error { return readByte(c) }))
		check(c.SetReadDeadline(time.Time{}))
		_, err = io.WriteString(s, "s")
		check(err)
		r.note("Read of later data", timedFor(3*time.Second, func() error { return readByte(c) }))
		read := make(chan error, 1)
		go func() { read <- readByte(c) }()
		time.Sleep(100 * time.Millisecond) // by now the Read is very likely blocked
		r.note("Close", timed(c.Close))
		r.note("Read", timedFor(3*time.Second, func() error { return <-read }))
		close(w.release)
		r.note("Copy", timedFor(3*time.Second, func() error { return <-copied }))
		r.note("the peer's Read", timed(func() error { return readByte(s) }))
	}},
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
