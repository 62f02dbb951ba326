package stats

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPlainReasonNames(t *testing.T) {
	for r, want := range map[PlainReason]string{
		PlainOther: "other", PlainPeer: "plain_peer", PlainHost: "other_host",
		PlainSetupFailed: "setup_failed", PlainRule: "rule", PlainOff: "off", PlainNoDevice: "no_device", PlainNoDevice + 1: "other",
	} {
		assert.Equal(t, want, r.String())
		text, err := r.MarshalText()
		assert.NoError(t, err)
		assert.Equal(t, want, string(text))
	}
	b, err := json.Marshal(map[PlainReason]uint64{PlainPeer: 1})
	assert.NoError(t, err)
	assert.Equal(t, `{"plain_peer":1}`, string(b))
}
