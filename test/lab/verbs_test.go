package lab_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/lab"
)

// TestVerbs is rdma/verbs on Linux's two software devices, all in one machine.
func TestVerbs(t *testing.T) {
	m := lab.Boot(t, lab.Config{})
	m.Copy(t, buildTest(t, "rdma/verbs"))
	m.Run(t, "rdma link add rxe0 type rxe netdev eth0")
	t.Run("rxe", func(t *testing.T) { testConformance(t, m) })
}

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

// unmet are what the conformance suite asks for and an RDMA NIC does not have: its
// driver counts STags up. Each connection has a protection domain of its own, so
// that the STags of one mean nothing on another, which the suite checks too.
const unmet = "TestConformance/Protection/STags"

func testConformance(t *testing.T, m *lab.Machine) {
	output := m.Run(t, fmt.Sprintf("VERBS_ADDRESS=%s ./verbs.test -test.v -test.skip '%s'", lab.Guest, unmet))
	require.NotContains(t, output, "no RDMA device")
}
