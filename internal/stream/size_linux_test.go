package stream

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// TestSize: a connection that never moves is cheap.
func TestSize(t *testing.T) { assert.LessOrEqual(t, int(unsafe.Sizeof(Conn{})), 416) }
