package sdp

import (
	"runtime/debug"
	"syscall"
	"unsafe"
)

// A system call that meets memory which is gone, such as the end of a mapped file that was
// truncated, returns EFAULT. A device copies in this process, where the same memory would end the
// program. So a Write reads a byte of each page of its memory first, unless that is certainly Go's. If
// the memory disappears after that, the program crashes, as in any copy.

const (
	// mappings is the address above which Linux puts the mappings that a program asks for, on
	// amd64 and arm64. Go's heap is below it on amd64, and nearly always on arm64.
	mappings = 7 << 44
	// touchMost is how many bytes are read ahead of being sent. They may come from a disk, but
	// splitting a Write makes zero copy less effective.
	touchMost = 64 << 20
	touchStep = 4 << 10 // at most a page
)

// mapped reports whether b may be memory that is not Go's.
func mapped(b []byte) bool {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) >= mappings
}

// whole reports whether all of b can be read.
func whole(b []byte) bool {
	n, _ := touch(b)
	return n == len(b)
}

// touch reads a byte of each page of b. It returns how many bytes precede the first page that cannot
// be read, and a value that depends on what it has read, without which the compiler would not read.
func touch(b []byte) (n int, read byte) {
	was := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(was)
		if n < len(b) {
			recover()
		}
	}()
	for n < len(b) {
		read ^= b[n]
		n += touchStep - int(uintptr(unsafe.Pointer(&b[n]))%touchStep)
	}
	n = len(b)
	return n, read
}

// writeMapped is writeWhole for memory that may have been unmapped or truncated.
func (c *conn) writeMapped(b []byte) (n int, err error) {
	for {
		part := b[n:][:min(touchMost, len(b)-n)]
		can, _ := touch(part)
		k, err := c.writeOrLose(part[:can])
		n += k
		switch {
		case err != nil:
			return n, err
		case can < len(part):
			return n, syscall.EFAULT
		case n == len(b):
			return n, nil
		}
	}
}
