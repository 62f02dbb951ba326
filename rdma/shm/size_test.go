//go:build linux

package shm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// TestSize: Go's allocator rounds up, to 768 bytes or to the next multiple of 128, and adds 8 bytes to
// objects with pointers.
func TestSize(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(QueuePair{})+8, uintptr(768))
}
