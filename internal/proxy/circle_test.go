package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCircles(t *testing.T) {
	c := circles{
		own: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
		lookup: func(host string) []netip.Addr {
			return map[string][]netip.Addr{
				"localhost": {netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1")},
				"here":      {netip.MustParseAddr("10.0.0.1")},
			}[host]
		},
	}
	for routes, want := range map[string]string{
		"tcp://127.0.0.1:1 sdp://127.0.0.1:1":  "f:1: routes lead in a circle: tcp://127.0.0.1:1 dials sdp://127.0.0.1:1",
		"tcp://127.0.0.1:1 auto://localhost:1": "f:1: routes lead in a circle: tcp://127.0.0.1:1 dials auto://localhost:1",
		"tcp://:1 sdp://127.0.0.1:1":           "f:1: routes lead in a circle",
		"tcp://[::]:1 sdp://10.0.0.1:1":        "f:1: routes lead in a circle",
		"tcp://0.0.0.0:1 sdp://here:1":         "f:1: routes lead in a circle",
		"tcp://127.0.0.1:1 sdp://0.0.0.0:1":    "f:1: routes lead in a circle",
		"tcp://:http sdp://[fd00::1]:80":       "f:1: routes lead in a circle",
		"tcp://127.0.0.1:3 tcp://a:9\ntcp://127.0.0.1:1 sdp://here:2\nsdp://:2 tcp://localhost:1":     "f:2: routes lead in a circle: tcp://127.0.0.1:1 dials sdp://here:2, sdp://:2 dials tcp://localhost:1",
		"tcp://:1 tcp://here:2\ntcp://:2 tcp://here:3\ntcp://:3 tcp://here:2":                         "f:2: routes lead in a circle: tcp://:2 dials tcp://here:3, tcp://:3 dials tcp://here:2",
		"tcp://127.0.0.1:1 sdp://127.0.0.1:2":                                                         "",
		"tcp://127.0.0.1:1 sdp://127.0.0.2:1":                                                         "",
		"tcp://0.0.0.0:1 sdp://[fd00::1]:1":                                                           "",
		"tcp://:1 sdp://10.0.0.2:1":                                                                   "",
		"tcp://:1 sdp://unknown:1":                                                                    "",
		"tcp://127.0.0.1:0 tcp://127.0.0.1:0":                                                         "",
		"tcp://@here tcp://127.0.0.1:1":                                                               "",
		"tcp://:1 auto://original":                                                                    "",
		"tcp://:1 tcp://here:2\ntcp://:2 tcp://here:4\ntcp://:3 tcp://here:4\ntcp://:4 tcp://db:5432": "",
	} {
		parsed, err := Parse(strings.NewReader(routes), "f", Options{})
		require.NoError(t, err)
		err = c.check("f", parsed)
		if want == "" {
			assert.NoError(t, err, routes)
		} else {
			assert.ErrorContains(t, err, want, routes)
		}
	}
}
