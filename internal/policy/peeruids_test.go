package policy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPeerUIDs: the program's users override the operator's rules, and those the environment.
func TestPeerUIDs(t *testing.T) {
	t.Cleanup(ReadRulesAgain)
	for _, v := range []struct {
		environment, rules string
		options            *Options
		want               []int
	}{
		{},
		{environment: "33, 1000", want: []int{33, 1000}},
		{environment: "33", rules: "share * with 7 8", want: []int{7, 8}},
		{environment: "33", rules: "share other with 7", want: []int{33}},
		{environment: "33", rules: "use tcp client * *:*", options: &Options{Devices: []string{"shm"}}, want: []int{33}},
		{rules: "share * with 7\nshare * with 8", options: &Options{Devices: []string{"shm"}}, want: []int{7, 8}},
		{environment: "33", rules: "share * with 7", options: &Options{PeerUIDs: []int{1}}, want: []int{1}},
		{environment: "33", rules: "share * with 7", options: &Options{PeerUIDs: []int{}}, want: []int{}},
	} {
		name := filepath.Join(t.TempDir(), "sdp.conf")
		require.NoError(t, os.WriteFile(name, []byte(v.rules), 0o600))
		t.Setenv(configVariable, name)
		t.Setenv(usersVariable, v.environment)
		ReadRulesAgain()
		uids, err := v.options.peerUIDs()
		require.NoError(t, err)
		assert.Equal(t, v.want, uids, "%+v", v)
	}
	t.Setenv(usersVariable, "www-data")
	_, err := new(Options).peerUIDs()
	assert.ErrorContains(t, err, "not the number of a user")
}

func TestPeerUIDsSetting(t *testing.T) {
	for _, v := range []struct {
		environment string
		program     []int
		want        []int
		err         string
	}{
		{"", nil, nil, ""},
		{"33, 1000", nil, []int{33, 1000}, ""},
		{"33", []int{0}, []int{0}, ""},
		{"33", []int{}, []int{}, ""},
		{"www-data", nil, nil, `SDP_PEER_UIDS=www-data: "www-data" is not the number of a user`},
		{"33,-1", []int{0}, nil, `SDP_PEER_UIDS=33,-1: "-1" is not the number of a user`},
		{"33,", nil, nil, `SDP_PEER_UIDS=33,: "" is not the number of a user`},
	} {
		t.Setenv(usersVariable, v.environment)
		got, err := (&Options{PeerUIDs: v.program}).peerUIDs()
		if v.err != "" {
			assert.EqualError(t, err, v.err)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, v.want, got)
	}
}
