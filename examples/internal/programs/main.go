package programs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Main runs the tests. If the test binary was started with the flag that makes the program
// a server process, Main runs the program instead.
func Main(m *testing.M, flag string, program func()) {
	if slices.Contains(os.Args, flag) {
		program()
		return
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // by default, a process with the race detector takes a second to exit
	dir, err := os.MkdirTemp("", "sdp")
	if err != nil {
		panic(err)
	}
	// A rule makes a dial on network tcp use SDP at once; a Config with Devices overrides the rule.
	rules := filepath.Join(dir, "sdp.conf")
	if err := os.WriteFile(rules, []byte("use sdp client * *:*\n"), 0o600); err != nil {
		panic(err)
	}
	os.Setenv("SDP_CONFIG", rules)
	os.Setenv("SDP_PEERS", "127.0.0.0/8,::1/128") // from where a listener lets clients ask for SDP over iwarp
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}
