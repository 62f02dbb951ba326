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
	os.Exit(m.Run())
}
