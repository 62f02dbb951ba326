package engine

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// TestSize: an idle connection is little more than its Conn. Go's allocator rounds
// up, to 768 bytes or the next 128, and puts 8 in front of what has pointers.
func TestSize(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Conn{})+8, uintptr(768))
}
