package rdmatest

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// lineVariable is the environment variable with the address at which the process with role a waits
// for the one with role b. A process without it has role a.
const lineVariable = "RDMATEST_LINE"

// again returns a command that runs one test of this binary with these variables.
func again(test string, variables ...string) *exec.Cmd {
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(test), "/", "$/^") + "$"
	cmd := exec.Command(os.Args[0], "-test.run="+pattern)
	// With the race detector, a process sleeps for a second before it exits.
	cmd.Env = append(os.Environ(), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, variables...)
	return cmd
}

// ExpectNoticed runs a test of this binary in another process, with variables that make the device a
// faulty one, and fails t unless that test fails there, or hangs.
func ExpectNoticed(t *testing.T, test string, variables ...string) {
	t.Helper()
	output, err := again(test, append(variables, patienceVariable+"=2s")...).CombinedOutput()
	for _, verdict := range []string{"--- FAIL: " + test + " ", "rdmatest: " + test + " hangs"} {
		if err != nil && strings.Contains(string(output), verdict) {
			return
		}
	}
	t.Errorf("not noticed (%v):\n%s", err, output)
}

// ExpectUnnoticed is the opposite: the test must pass despite the variables.
func ExpectUnnoticed(t *testing.T, test string, variables ...string) {
	t.Helper()
	cmd := again(test, variables...)
	cmd.Args = append(cmd.Args, "-test.v")
	output, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: "+test+" ") {
		t.Errorf("%v:\n%s", err, output)
	}
}
