package parity

import (
	"io"
	"net"
	"sync"
	"time"
)

// slowScripts have a client on a slow path, which receives data long after Close.
var slowScripts = []script{
	{name: "close on a slow path", stacks: []string{"net", "iwarp"}, run: func(r *run) {
		ln, err := r.ListenOnly()
		check(err)
		size, rate := r.slow()
		relay := r.startRelay(ln.Addr().String(), rate)
		accepted := make(chan conn, 1)
		go func() { accepted <- r.accept(ln) }()
		c, err := r.Dial(relay)
		check(err)
		r.slowClose(<-accepted, c, size)
	}},
	{name: "close before a slow reader", run: func(r *run) {
		c, s := r.pair()
		size, rate := r.slow()
		r.slowClose(s, &slowReader{conn: c, pace: startPace(rate)}, size)
	}},
}

// slow returns how many bytes a slow client gets in total, and per second.
func (r *run) slow() (size, rate int) {
	if r.short {
		return 1 << 20, 1 << 20
	}
	return 2 << 20, 400 << 10
}

// writePieces writes the first n bytes of the stream in pieces that are too small for zero
// copy.
func writePieces(c conn, n int) error {
	b := make([]byte, 8<<10)
	for i := 0; i < n; i += len(b) {
		if _, err := c.Write(pattern(b, i)); err != nil {
			return err
		}
	}
	return nil
}

// slowClose makes the server write and close while the client reads.
func (r *run) slowClose(server conn, client io.Reader, size int) {
	read := make(chan string, 1)
	go func() { read <- readSlowly(client, size) }()
	r.note("Write", describe(writePieces(server, size)))
	r.note("Close", timed(server.Close))
	r.note("the client reads", <-read)
}

// readSlowly acts like readAll without its time limit.
func readSlowly(c io.Reader, want int) string {
	got, err := readTo(c, 0, endless)
	return amount(got, want) + ", then " + describe(err)
}

// pace limits a transfer to rate bytes per second.
type pace struct {
	rate   int
	begin  time.Time
	passed int
}

func startPace(rate int) *pace { return &pace{rate: rate, begin: time.Now()} }

func (p *pace) pass(n int) {
	p.passed += n
	time.Sleep(time.Until(p.begin.Add(time.Duration(p.passed) * time.Second / time.Duration(p.rate))))
}

// slowReader reads at a limited rate.
type slowReader struct {
	conn
	pace *pace
}

func (s *slowReader) Read(b []byte) (int, error) {
	n, err := s.conn.Read(b[:min(len(b), 8<<10)])
	s.pace.pass(n)
	return n, err
}

// startRelay starts a relay for one TCP connection and returns its address. It forwards to the
// client at the given rate. It also passes on the end of a stream, and resets.
func (r *run) startRelay(server string, rate int) string {
	ln, err := net.Listen("tcp", ownAddress)
	check(err)
	go func() {
		c, err := ln.Accept()
		check(err)
		s, err := net.Dial("tcp", server)
		check(err)
		client, toServer := c.(*net.TCPConn), s.(*net.TCPConn)
		check(toServer.SetReadBuffer(32 << 10)) // the rest stays in the server's kernel
		var both sync.WaitGroup
		both.Go(func() { forward(client, toServer, startPace(rate), 4<<10) })
		both.Go(func() { forward(toServer, client, startPace(1<<30), 64<<10) })
		both.Wait()
		client.Close()
		toServer.Close()
	}()
	return ln.Addr().String()
}

func forward(to, from *net.TCPConn, p *pace, piece int) {
	b := make([]byte, piece)
	for {
		n, err := from.Read(b)
		if n > 0 {
			p.pass(n)
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		switch {
		case err == io.EOF:
			to.CloseWrite()
			return
		case err != nil:
			to.SetLinger(0)
			to.Close()
			return
		}
	}
}
