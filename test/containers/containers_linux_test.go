package containers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// isPlain has the client dial; each connection must be plain TCP.
func isPlain(t *testing.T, c *container, address string) {
	t.Helper()
	assert.Equal(t, "map[tcp:20]", c.does(t, "dial tcp %s 20", address))
	if t.Failed() {
		t.Log("the client says: ", c.does(t, "log"))
	}
}

const at = serverAddress + ":7000"

// TestPlainTCPBetweenContainers, whatever they have in common.
func TestPlainTCPBetweenContainers(t *testing.T) {
	needsRoot(t)
	for _, v := range []struct {
		name   string
		client options
	}{
		{"everything", options{}},
		{"another user", options{uid: 1000}},
		{"another user namespace", options{users: true}},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := pair(t, options{}, v.client)
			require.Equal(t, "ok", s.does(t, "listen tcp :7000"))
			isPlain(t, c, at)
		})
	}
}

// TestPlainProgramsOfContainers: a server without SDP in a container that serves SDP too gets nothing but
// the clients' own bytes, and a client without SDP does not wait.
func TestPlainProgramsOfContainers(t *testing.T) {
	needsRoot(t)
	s, c := pair(t, options{}, options{})
	require.Equal(t, "ok", s.does(t, "plain :7001"))
	require.Equal(t, "ok", s.does(t, "listen tcp :7000"))
	isPlain(t, c, serverAddress+":7001")
	assert.Equal(t, fmt.Sprintf("20 %q", strings.Repeat("secret", 20*(100/6+1))), s.does(t, "seen"))
	require.Equal(t, "ok", c.does(t, "nets %s 50", at))
}
