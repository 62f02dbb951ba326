package parity

// exitScripts show what a program sees when its peer's process ends without Close.
var exitScripts = []script{
	{name: "the peer exits", run: func(r *run) {
		p, c := r.peer()
		r.note("the peer's Write", p.do("write 1000"))
		_, err := readTo(c, 0, 1000)
		check(err)
		p.exit()
		r.note("Read", timed(func() error { return readByte(c) }))
		r.note("a further Read", describeCall(c.Read))
		r.log("first Write: %s", describeCall(c.Write))
		r.note("a later Write", describe(writeUntilError(c)))
		r.note("Close", timed(c.Close))
	}},
	{name: "the peer is killed", run: func(r *run) {
		p, c := r.peer()
		r.note("the peer's Write", p.do("write 1000"))
		_, err := readTo(c, 0, 1000)
		check(err)
		p.kill()
		r.note("Read", timed(func() error { return readByte(c) }))
		r.note("Close", timed(c.Close))
	}},
	{name: "the peer is killed while we read", run: func(r *run) {
		p, c := r.peer()
		read := blocked(func() error { return readByte(c) })
		p.kill()
		r.note("Read", timed(func() error { return <-read }))
		r.note("Close", timed(c.Close))
	}},
	{name: "the peer exits before we read", run: func(r *run) {
		p, c := r.peer()
		r.note("the peer's Write", p.do("write 100000"))
		p.exit()
		r.note("we read", readAll(c, 100_000))
	}},
	{name: "the peer is killed before we read", run: func(r *run) {
		p, c := r.peer()
		r.note("the peer's Write", p.do("write 100000"))
		p.kill()
		r.note("we read", readAll(c, 100_000))
	}},
	{name: "the peer has read everything and is killed", run: func(r *run) {
		p, c := r.peer()
		_, err := c.Write(bytesOf(100_000))
		check(err)
		r.note("the peer's Read", p.do("read 100000"))
		p.kill()
		r.note("Read", describeCall(c.Read))
	}},
	{name: "the peer is killed with unread bytes of ours", run: func(r *run) {
		p, c := r.peer()
		_, err := c.Write(bytesOf(1000))
		check(err)
		r.note("the peer's Read", p.do("read 1")) // so they have arrived
		p.kill()
		r.note("Read", timed(func() error { return readByte(c) }))
		r.note("a later Write", describe(writeUntilError(c)))
		r.note("Close", timed(c.Close))
	}},
	{name: "the peer is killed on a full connection", run: func(r *run) {
		p, c := r.peer()
		_, err := fill(c)
		check(err)
		p.kill()
		r.note("Read", r.takenOut(timed(func() error { return readByte(c) })))
		r.note("a later Write", describe(writeUntilError(c)))
		r.note("Close", timed(c.Close))
	}},
	{name: "the peer is killed while we write", run: func(r *run) {
		p, c := r.peer()
		_, err := fill(c)
		check(err)
		written := blocked(func() error {
			_, err := c.Write(make([]byte, blocking))
			return err
		})
		p.kill()
		r.note("Write", r.takenOut(timed(func() error { return <-written })))
		r.note("Close", timed(c.Close))
	}},
}

// takenOut returns what a call saw when the peer was killed on a full connection. Over iwarp,
// whether the peer's library has already read the last bytes from the kernel depends on time. If
// it has, its kernel ends the connection without a reset.
func (r *run) takenOut(saw string) string {
	without := map[string]string{"EOF": "read ECONNRESET", "write EPIPE": "write ECONNRESET"}
	if reset, ok := without[saw]; ok && r.name == "iwarp" {
		return reset
	}
	return saw
}
