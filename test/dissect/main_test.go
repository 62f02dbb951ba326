package dissect

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// notInShort skips what takes long, because tshark starts slowly, and is much like another test.
func notInShort(t *testing.T, long bool) {
	t.Helper()
	if long && testing.Short() {
		t.Skip("missing: time, because -short is set")
	}
}
