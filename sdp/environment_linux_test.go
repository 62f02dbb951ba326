package sdp

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestUnfiltered: a process whose system calls are filtered does not try to read its peers'
// memory.
func TestUnfiltered(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nNoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n": true,
		"Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n": false,
		"Name:\tx\nSeccomp:\t1\n":                                      false,
		"Name:\tx\n":                                                   true,
	} {
		assert.Equal(t, want, unfiltered(status), "%q", status)
	}
}
