// Package fault finds memory of the program that is gone, such as the end of a mapped file that was
// truncated. A system call that meets such memory returns EFAULT. A copy in this process would end the program. So whoever
// copies a program's memory looks at a byte of each of its pages first, unless the memory is certainly Go's. If it
// disappears after that, the program crashes, as in any copy.
package fault

import (
	"runtime/debug"
	"unsafe"
)

const (
	// mappings is the address above which Linux puts the mappings that a program asks for, on
	// amd64 and arm64. Go's heap is below it on amd64, and nearly always on arm64.
	mappings = 7 << 44
	step     = 4 << 10 // at most a page
)

// Mapped reports whether b may be memory that is not Go's.
func Mapped(b []byte) bool {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) >= mappings
}

// Readable returns how many bytes of b precede the first page that cannot be read.
func Readable(b []byte) int {
	if !Mapped(b) {
		return len(b)
	}
	n, _ := touch(b)
	return n
}

// touch reads a byte of each page of b. Its second result depends on what it has read: without it, the compiler would
// not read.
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
		n += step - int(uintptr(unsafe.Pointer(&b[n]))%step)
	}
	n = len(b)
	return n, read
}
