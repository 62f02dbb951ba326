package programs

import (
	"os"
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
	os.Exit(m.Run())
}
