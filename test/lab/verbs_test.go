package lab_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/lab"
)

// TestVerbs tests rdma/verbs on Linux's rxe (RoCE) and siw (iWARP). It runs the conformance
// suite (with -short only its fast parts) and SDP over the device. Without -short it also kills and stops programs,
// deletes the device, and replaces it by another one.
func TestVerbs(t *testing.T) {
	m := lab.Boot(t, lab.Config{})
	m.Copy(t, buildTest(t, "rdma/verbs"))
	m.Copy(t, buildTest(t, "test/lab/inside"))
	m.Copy(t, buildTest(t, "test/faults"))
	m.Copy(t, buildTour(t))
	for _, device := range []struct {
		name, add   string
		unsupported []string
	}{
		{"rxe", "rdma link add rxe0 type rxe netdev eth0", unsupported},
		{"siw", "siw siw", slices.Concat(unsupported, unsupportedBySiw)},
	} {
		t.Run(device.name, func(t *testing.T) {
			m.Run(t, device.add)
			t.Run("device", func(t *testing.T) {
				flags := fmt.Sprintf("%s -test.skip '%s'", times, strings.Join(device.unsupported, "|"))
				if testing.Short() {
					flags += fmt.Sprintf(" -test.run '%s'", shortTests)
				}
				runInside(t, m, "verbs", flags)
			})
			t.Run("sdp", func(t *testing.T) {
				flags := times + " -test.skip TestLinkDeleted"
				if testing.Short() {
					flags += " -test.run 'Test(StepsUp|Stream|ZeroCopy|NetConn|HTTP|PeerKilled|ReusedBuffers)$'"
				}
				runInside(t, m, "inside", flags)
			})
			t.Run("tour", func(t *testing.T) { testTour(t, m) })
			if testing.Short() {
				return
			}
			t.Run("faults", func(t *testing.T) { testFaults(t, m) })
			if device.name != "siw" { // whose module does not survive it
				t.Run("starved", func(t *testing.T) { testStarved(t, m) })
			}
			t.Run("link deleted", func(t *testing.T) {
				output := m.Run(t, fmt.Sprintf(
					"%sVERBS_DELETE='sleep 1; rdma link delete %s0' ./inside.test -test.v -test.run TestLinkDeleted", atGuest, device.name))
				assert.Contains(t, output, "--- PASS: TestLinkDeleted")
			})
		})
	}
	if testing.Short() {
		return
	}
	// A device of rxe or siw that is in use can be deleted far enough that a device of another
	// driver can take its address.
	for _, v := range [][2]string{{"rxe", "siw"}, {"siw", "rxe"}} {
		t.Run(v[0]+" replaced", func(t *testing.T) {
			m.Run(t, "[[ -e /sys/module/siw ]] || insmod /lib/modules/$(uname -r)/siw/siw")
			// A device that is being deleted disappears when the process that used it has ended.
			m.Run(t, `until [[ -z $(rdma link) ]]; do
				rdma link delete "$(rdma link | sed 's/^link //; s,/.*,,; q')" || sleep 0.1
			done`)
			m.Run(t, fmt.Sprintf("rdma link add old type %s netdev eth0", v[0]))
			output := m.Run(t, fmt.Sprintf(
				"%sVERBS_TAKE='rdma link delete old' VERBS_GIVE='rdma link add new type %s netdev eth0' ./verbs.test -test.v -test.run TestDeviceReplaced", atGuest, v[1]))
			assert.Contains(t, output, "--- PASS: TestDeviceReplaced")
			m.Run(t, "rdma link delete new")
		})
	}
}

// TestByReference: when siw reports data as sent, TCP may still have to send them, from memory
// that it has not copied (see rdma/verbs). The lab makes this happen, with a delay.
func TestByReference(t *testing.T) {
	if testing.Short() {
		t.Skip("missing: time, because -short is set; make verbs runs this test")
	}
	m := lab.Boot(t, lab.Config{})
	m.Copy(t, buildTest(t, "rdma/verbs"))
	m.Copy(t, buildTest(t, "test/lab/inside"))
	m.Run(t, "siw siw-by-reference; tc qdisc add dev lo root netem delay 30ms limit 10000")
	runInside(t, m, "verbs", "-test.run 'Test(ReusedRing|ReusedMemory|ForeignMemory)$'")
	runInside(t, m, "inside", "-test.run 'Test(Stream|ZeroCopy|ReusedBuffers)$'")
}

const atGuest = "export VERBS_ADDRESS=" + lab.Guest + "; "

// times is how often each test in the machine runs. make repeat-lab sets it.
var times = "-test.count " + cmp.Or(os.Getenv("GOSDP_LAB_TIMES"), "1")

// shortTests selects the tests of the conformance suite that transfer few bytes.
const shortTests = "Test(Probe|Reaches|Token|NobodyListens|NobodyAnswers|DialTakesTooLong|Kept|ReusedRing|ReusedMemory|ForeignMemory|Fork)$|TestConformance/(Send|Violation|Room|Drain|Teardown|Protection)"

// unsupported are tests of the conformance suite that no NIC passes: drivers assign STags
// sequentially, and InfiniBand and RoCE have no remote invalidation. Each connection has its
// own protection domain, so STags are not valid on another connection, which the suite also
// checks. A NIC and a kernel take messages without the peer's program, so none stays busy. The cache's own tests
// need no device and run outside the lab.
var unsupported = []string{
	"TestConformance/Protection/STags", "TestConformance/Invalidate/ByPeer", "Test(Allocs)?Cache",
	"TestConformance/Drain/(Backlog|Deadline)", "TestConformance/Room/(Backpressure|RoomCarries|WakeRoom|BareWhenBusy|BareIsBounded)",
	"TestConformance/Optional/FinishBacklog",
}

// unsupportedBySiw are tests that siw fails as well. If the peer names an unknown STag or
// reads memory that it may not read, siw ends the connection but does not always report the
// reason. After a Read without permission it ends only the peer's end, and ours when that
// closes. It also deregisters a region while it is still transferring a segment or answering
// a Read, which a device must not.
var unsupportedBySiw = []string{
	"TestConformance/Protection/Write/(UnknownSTag|NextSTag|NoSTag|Wraps|EndsAtTheTop|Invalidated)",
	"TestConformance/Protection/Read/",
	"TestConformance/Protection/OtherConnection",
	"TestConformance/Invalidate/While",
	"TestConformance/Teardown/Regions",
	"TestApart/Invalidate",
}

// buildTest compiles the tests of a package and returns the program's path.
func buildTest(t testing.TB, pkg string) string {
	t.Helper()
	path := filepath.Join(programs, filepath.Base(pkg)+".test")
	build := exec.Command("go", "test", "-c", "-o", path, "github.com/gosdp/gosdp/"+pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return path
}

// TestNotLinked: examples/tour imports rdma/verbs but does not link the RDMA libraries.
func TestNotLinked(t *testing.T) {
	if os.Getenv("GOSDP_LAB") == "" {
		t.Skip("missing: the RDMA lab, GOSDP_LAB is not set")
	}
	path := buildTour(t)
	linked, err := exec.Command("ldd", path).CombinedOutput()
	require.NoError(t, err, "%s", linked)
	require.NotContains(t, string(linked), "ibverbs")
}

// buildTour builds examples/tour and returns the program's path.
func buildTour(t testing.TB) string {
	t.Helper()
	path := filepath.Join(programs, "tour")
	build := exec.Command("go", "build", "-o", path, "./tour")
	build.Dir, build.Env = "../../examples", append(os.Environ(), "CGO_ENABLED=1")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return path
}

// testTour makes examples/tour compare every byte of round trips, requests and a transfer.
// Both processes may use only the hardware. Their time limits suit an emulated processor.
func testTour(t *testing.T, m *lab.Machine) {
	output := m.Run(t, fmt.Sprintf("timeout 300 ./tour -host %s -devices verbs -turn 100ms -bytes 10000000", lab.Guest))
	for _, load := range []string{"round trips of 64 B", "HTTP requests of 1 KB", "transfer"} {
		assert.Regexp(t, `(?m)^ *`+load+` +verbs +[0-9]`, output)
	}
	t.Log(output)
}

// testFaults runs package faults, except faults of certain devices or of the machine's
// memory: processes are stopped and killed under load, and run with one processor and constant
// garbage collection.
func testFaults(t *testing.T, m *lab.Machine) {
	const run = "Test(Stopped|ServerIsKilled|ClientIsKilled|Environments)$"
	output := m.Run(t, fmt.Sprintf(
		"FAULTS_DEVICES=verbs FAULTS_ADDRESS=%s FAULTS_MOST=300000 ./faults.test -test.short -test.v -test.run '%s'", lab.Guest, run))
	require.Contains(t, output, "--- PASS: TestEnvironments")
	require.Contains(t, output, "\nPASS\n")
}

// testStarved dials while processes are stopped, in several ways.
func testStarved(t *testing.T, m *lab.Machine) {
	output := m.Run(t, atGuest+"VERBS_STORM=30s ./inside.test -test.v -test.run '^TestStarvedDials$'")
	assert.Contains(t, output, "--- PASS: TestStarvedDials")
	t.Log(output)
}

// runInside runs a test program. No test may be skipped because hardware is missing.
func runInside(t *testing.T, m *lab.Machine, program, flags string) {
	t.Helper()
	output := m.Run(t, fmt.Sprintf(atGuest+"./%s.test -test.v %s", program, flags))
	require.NotContains(t, output, "missing: VERBS_ADDRESS")
	require.Contains(t, output, "\nPASS\n")
}
