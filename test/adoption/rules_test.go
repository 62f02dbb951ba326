package adoption

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRules has a program of package net obey the operator's rules.
func TestRules(t *testing.T) {
	want(t, "all")
	dir := echoModule(t, nil)
	run(t, dir, env(), sdp(t), "build", "-o", "program", ".")
	file := filepath.Join(t.TempDir(), "sdp.conf")
	for _, v := range []struct {
		rules, devices string
		dialled        string // the device; "": the program fails; "either"
		says           string
	}{
		{"use tcp client other *:*", "shm", "shm", "echoed"},
		{"use tcp client progra? 127.0.0.0/8:*", "shm", "tcp", "echoed"},
		{"use tcp server program *:*", "shm", "tcp", "echoed"},
		{"use sdp client * *:*", "shm", "shm", "echoed"},
		{"use sdp client * *:*\nuse tcp server * *:*", "shm", "", "panic: "},
		{"use sdp client * *:*", "tcp", "", file + ":1 requires SDP: "},
		{"use both client * *:*", "tcp", "tcp", "echoed"},
		{"use tcp client * *:*\nnonsense", "shm", "either", "sdp: SDP_CONFIG ignored: " + file + ":2: unknown statement"},
		{"log min-level 7\nuse sdp client * *:*", "shm", "shm", ": SDP over shm (line 2: use sdp client * *:*)"},
	} {
		t.Run(v.rules+" "+v.devices, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, []byte(v.rules), 0o600))
			connections := newReport(t)
			out, err := try(t, dir, env("SDP_DEVICES="+v.devices, "SDP_CONFIG="+file, connections.env()), filepath.Join(dir, "program"))
			require.Equal(t, v.dialled == "", err != nil, out)
			require.Contains(t, out, v.says)
			shm, tcp := connections.count(t, "dial", "shm"), connections.count(t, "dial", "tcp")
			switch v.dialled {
			case "either": // which of them depends on how soon the server accepts
				require.Equal(t, 1, shm+tcp)
			case "":
				require.Zero(t, shm+tcp)
			default:
				require.Equal(t, 1, connections.count(t, "dial", v.dialled))
				require.Equal(t, 1, shm+tcp)
			}
		})
	}
}
