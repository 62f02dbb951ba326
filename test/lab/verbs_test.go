package lab_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/lab"
)

// TestVerbs is rdma/verbs on Linux's RoCE, rxe: the conformance suite, and SDP over
// it.
func TestVerbs(t *testing.T) {
	m := lab.Boot(t, lab.Config{})
	m.Copy(t, buildTest(t, "rdma/verbs"))
	m.Copy(t, buildTest(t, "test/lab/inside"))
	const add = "rdma link add rxe0 type rxe netdev eth0"
	m.Run(t, add)
	t.Run("device", func(t *testing.T) { runInside(t, m, "verbs", "-test.skip "+unmet) })
	t.Run("sdp", func(t *testing.T) { runInside(t, m, "inside", "-test.skip TestLinkDeleted") })
	t.Run("link deleted", func(t *testing.T) {
		output := m.Run(t, atGuest+"VERBS_DELETE='sleep 1; rdma link delete rxe0' ./inside.test -test.v -test.run TestLinkDeleted")
		assert.Contains(t, output, "--- PASS: TestLinkDeleted")
	})
}

const atGuest = "export VERBS_ADDRESS=" + lab.Guest + "; "

// unmet is what the conformance suite asks for and a NIC does not have: its driver
// counts STags up, and InfiniBand and RoCE invalidate nothing remotely. Each
// connection has a protection domain of its own, so that the STags of one mean
// nothing on another, which the suite checks too.
const unmet = "'TestConformance/(Protection/STags|Invalidate/ByPeer.*)'"

// buildTest compiles the tests of a package, and returns the program's path.
func buildTest(t *testing.T, pkg string) string {
	t.Helper()
	path := filepath.Join(programs, filepath.Base(pkg)+".test")
	build := exec.Command("go", "test", "-c", "-o", path, "github.com/gosdp/gosdp/"+pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return path
}

// runInside runs a test program, none of which may be skipped for want of hardware.
func runInside(t *testing.T, m *lab.Machine, program, flags string) {
	t.Helper()
	output := m.Run(t, fmt.Sprintf(atGuest+"./%s.test -test.v %s", program, flags))
	require.NotContains(t, output, "no RDMA device is named")
	require.Contains(t, output, "\nPASS\n")
}
