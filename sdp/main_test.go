package sdp

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the peer process too.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		bePeer(role)
		return
	}
	goleak.VerifyTestMain(m)
}
