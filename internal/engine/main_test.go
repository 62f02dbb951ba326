package engine

import (
	"testing"

	"github.com/gosdp/gosdp/test/conntest"
)

// TestMain lets the test binary be the peer process too.
func TestMain(m *testing.M) { conntest.Main(m, bePeer) }
