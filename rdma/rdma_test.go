package rdma

import (
	"fmt"
	"io"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTerminatedIsReset: a program that knows how TCP's connections end knows this end.
func TestTerminatedIsReset(t *testing.T) {
	err := fmt.Errorf("write: %w", &TerminateError{Layer: 1, Type: 2, Code: 3})
	assert.ErrorIs(t, err, syscall.ECONNRESET)
	assert.NotErrorIs(t, err, io.EOF)
	assert.ErrorContains(t, err, "layer 1, type 2, code 0x3")
}
