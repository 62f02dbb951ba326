package sdp

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/rdma"
)

// TestMain lets the test binary be the peer process too.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		bePeer(role)
		return
	}
	localpeer.Sighted() // the descriptor that it takes is the process's, and no test's
	goleak.VerifyTestMain(m)
}

// bestDevice is the one that two ends on this host use, unless SDP_DEVICES says
// otherwise: with that all tests can be run on any.
func bestDevice() string {
	if list := os.Getenv(devicesVariable); list != "" {
		return strings.Split(list, ",")[0]
	}
	if _, ok := rdma.LookupDevice("shm"); ok {
		return "shm"
	}
	return "iwarp"
}
