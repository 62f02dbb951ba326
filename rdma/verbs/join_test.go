//go:build linux && cgo

package verbs

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestWithFreePort: a port in use is tried again, a limited number of times; other errors are not.
func TestWithFreePort(t *testing.T) {
	inUse := fmt.Errorf("verbs: rdma_cm: connect: %w", syscall.EADDRINUSE)
	other := errors.New("refused")
	for _, v := range []struct {
		results []error
		want    error
		tries   int
	}{
		{[]error{nil}, nil, 1},
		{[]error{inUse, inUse, nil}, nil, 3},
		{[]error{inUse, other, nil}, other, 2},
		{[]error{inUse, inUse, inUse, inUse, inUse, nil}, inUse, 5},
	} {
		tries := 0
		err := withFreePort(func() error { tries++; return v.results[tries-1] })
		assert.Equal(t, v.want, err)
		assert.Equal(t, v.tries, tries)
	}
}
