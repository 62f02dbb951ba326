package sdp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPeerUIDs: the program's users override the operator's rules, and those the environment.
func TestPeerUIDs(t *testing.T) {
	before := rulesReader.Load()
	t.Cleanup(func() { rulesReader.Store(before) })
	for _, v := range []struct {
		environment, rules string
		config             *Config
		want               []int
	}{
		{},
		{environment: "33, 1000", want: []int{33, 1000}},
		{environment: "33", rules: "share * with 7 8", want: []int{7, 8}},
		{environment: "33", rules: "share other with 7", want: []int{33}},
		{environment: "33", rules: "use tcp client * *:*", config: &Config{Devices: []string{"shm"}}, want: []int{33}},
		{rules: "share * with 7\nshare * with 8", config: &Config{Devices: []string{"shm"}}, want: []int{7, 8}},
		{environment: "33", rules: "share * with 7", config: &Config{PeerUIDs: []int{1}}, want: []int{1}},
		{environment: "33", rules: "share * with 7", config: &Config{PeerUIDs: []int{}}, want: []int{}},
	} {
		name := filepath.Join(t.TempDir(), "sdp.conf")
		require.NoError(t, os.WriteFile(name, []byte(v.rules), 0o600))
		t.Setenv(configVariable, name)
		t.Setenv(usersVariable, v.environment)
		readAgain()
		uids, err := v.config.peerUIDs()
		require.NoError(t, err)
		assert.Equal(t, v.want, uids, "%+v", v)
	}
	t.Setenv(usersVariable, "www-data")
	_, err := new(Config).peerUIDs()
	assert.ErrorContains(t, err, "not the number of a user")
}
