package parity

import (
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// faultScripts write memory that is gone: a mapped file that was truncated.
var faultScripts = []script{
	{name: "writes of a truncated mapping", run: func(r *run) {
		for _, size := range []int{100, 64 << 10, 4 << 20} {
			writeGone(r, size, func(c conn, b []byte) (int, error) { return c.Write(b) })
		}
	}},
	{name: "a small write of a truncated mapping after others", run: func(r *run) {
		writeGone(r, 100, func(c conn, b []byte) (int, error) {
			total := 0
			for range 20 {
				n, err := c.Write([]byte("a small Write; "))
				check(err)
				total += n
			}
			n, err := c.Write(b)
			return total + max(n, 0), err
		})
	}},
	{name: "buffers of a truncated mapping", run: func(r *run) {
		writeGone(r, 100, func(c conn, b []byte) (int, error) {
			v := net.Buffers{[]byte("first"), []byte("second"), b, []byte("last")}
			write := v.WriteTo
			if sdp, ok := c.(interface {
				WriteBuffers(*net.Buffers) (int64, error)
			}); ok {
				write = func(io.Writer) (int64, error) { return sdp.WriteBuffers(&v) }
			}
			n, err := write(c)
			return int(n), err
		})
	}},
}

// writeGone passes size bytes to write, of which those after the first page are gone. write returns how
// many bytes it has written in all. The connection goes on afterwards.
func writeGone(r *run, size int, write func(conn, []byte) (int, error)) {
	c, s := r.pair()
	read := make(chan int)
	go func() {
		b, err := io.ReadAll(s)
		check(err)
		read <- len(b)
	}()
	n, err := write(c, truncated(size))
	n = max(n, 0)
	r.note("Write", describe(err))
	_, err = c.Write(make([]byte, 1000))
	r.note("a later Write", describe(err))
	check(c.CloseWrite())
	r.must("the peer reads what was written", <-read == n+1000)
	check(c.Close())
	check(s.Close())
}

// truncated returns size bytes of a mapped file. Those after the first page are gone, or all if there
// are no more than that.
func truncated(size int) []byte {
	f, err := os.CreateTemp("", "truncated")
	check(err)
	defer os.Remove(f.Name())
	defer f.Close()
	page := os.Getpagesize()
	check(f.Truncate(int64(page + size)))
	b, err := unix.Mmap(int(f.Fd()), 0, page+size, unix.PROT_READ, unix.MAP_SHARED)
	check(err)
	check(f.Truncate(int64(page)))
	if size <= page {
		return b[page:][:size]
	}
	return b[10:][:size]
}
