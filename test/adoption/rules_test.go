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
		device         string // that the connection has used; "": the program fails
		says           string
	}{
		{"use tcp client other *:*", "shm", "shm", "echoed"},
		{"use tcp client progra? 127.0.0.0/8:*", "shm", "tcp", "echoed"},
		{"use tcp server program *:*", "shm", "tcp", "echoed"},
		{"use sdp client * *:*", "shm", "shm", "echoed"},
		{"use sdp client * *:*\nuse tcp server * *:*", "shm", "", "panic: "},
		{"use sdp client * *:*", "tcp", "", file + ":1 requires SDP: "},
		{"use sdp server * *:*", "shm", "", file + ":1 requires SDP: program cannot refuse clients without SDP"},
		{"use both client * *:*", "tcp", "tcp", "echoed"},
		{"use tcp client * *:*\nnonsense", "shm", "shm", "sdp: SDP_CONFIG ignored: " + file + ":2: unknown statement"},
		{"log min-level 7\nuse sdp client * *:*", "shm", "shm", ": peer met in shared memory (line 2: use sdp client * *:*)"},
	} {
		t.Run(v.rules+" "+v.devices, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, []byte(v.rules), 0o600))
			connections := newReport(t)
			out, err := try(t, dir, env("SDP_DEVICES="+v.devices, "SDP_CONFIG="+file, atOnce, connections.env()), filepath.Join(dir, "program"))
			require.Equal(t, v.device == "", err != nil, out)
			require.Contains(t, out, v.says)
			moved := 0
			if v.device == "shm" {
				moved = 1
			}
			require.Equal(t, moved, connections.count(t, "dial", "shm"))
		})
	}
}
