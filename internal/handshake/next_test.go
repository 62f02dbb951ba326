package handshake

import (
	"context"
	"io"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

// TestSecondAttempts has what a Dial does if every connection fails in the same way. That this end is too
// slow happens once; see TestLateClientOfSDPConnectsAgain.
func TestSecondAttempts(t *testing.T) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for _, v := range []struct {
		name     string
		err      error
		tcp, sdp []Next // sdp: until it fails
	}{
		{"both ends agreed on plain TCP", &NotSDPError{Err: &mpa.RejectError{}, Usable: true}, []Next{Keep}, []Next{Fail}},
		{"this end was too slow", errTooLate, nil, []Next{Ask}},
		{"a reset", &NotSDPError{Err: syscall.ECONNRESET}, []Next{Redial}, []Next{Ask, Ask, Fail}},
		{"an end", &NotSDPError{Err: io.EOF}, []Next{Redial}, []Next{Fail}},
		{"another protocol", &NotSDPError{Err: &mpa.NotMPAError{Got: []byte("HTTP")}}, []Next{Redial}, []Next{Fail}},
		{"a rejection without a choice", &NotSDPError{Err: &mpa.RejectError{}}, []Next{Redial}, []Next{Fail}},
		{"a violation", &rdma.ProtocolError{}, []Next{Redial}, []Next{Fail}},
	} {
		t.Run(v.name, func(t *testing.T) {
			for _, only := range []bool{false, true} {
				want := v.tcp
				if only {
					want = v.sdp
				}
				c := Client{Config: &Config{SDPOnly: only}, Redials: true}
				for _, want := range want {
					assert.Equal(t, want, c.Next(t.Context(), v.err))
				}
			}
			c := Client{Config: &Config{SDPOnly: true}, Redials: true}
			assert.Equal(t, Fail, c.Next(done, v.err), "after the time of the Dial")
		})
	}
}
