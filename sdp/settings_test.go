package sdp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSettingsOfTheHandshake: it gets what the program has configured.
func TestSettingsOfTheHandshake(t *testing.T) {
	n, err := parseNetwork("tcp")
	require.NoError(t, err)
	for _, v := range []struct {
		config *Config
		ttl    time.Duration
		proxy  bool
	}{
		{nil, time.Minute, false},
		{&Config{PlainTTL: 3 * time.Hour}, 3 * time.Hour, false},
		{&Config{StepUpThroughProxies: true}, time.Minute, true},
	} {
		set, err := v.config.settings(n, false)
		require.NoError(t, err)
		assert.Equal(t, v.ttl, set.PlainTTL)
		assert.Equal(t, v.proxy, set.ThroughProxies)
	}
}
