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

// TestVerbs is rdma/verbs on Linux's RoCE, rxe, and iWARP, siw: the conformance
// suite, or with -short what of it takes the least time; SDP over the device; and
// what becomes of it when the device goes, and when another one takes its place.
func TestVerbs(t *testing.T) {
	m := lab.Boot(t, lab.Config{})
	m.Copy(t, buildTest(t, "rdma/verbs"))
	m.Copy(t, buildTest(t, "test/lab/inside"))
	m.Copy(t, buildTest(t, "test/faults"))
	m.Copy(t, buildHTTP(t))
	for _, device := range []struct {
		name, add string
		unmet     []string
	}{
		{"rxe", "rdma link add rxe0 type rxe netdev eth0", unmet},
		{"siw", "siw siw", slices.Concat(unmet, unmetBySiw)},
	} {
		t.Run(device.name, func(t *testing.T) {
			m.Run(t, device.add)
			t.Run("device", func(t *testing.T) {
				flags := fmt.Sprintf("%s -test.skip '%s'", times, strings.Join(device.unmet, "|"))
				if testing.Short() {
					flags += fmt.Sprintf(" -test.run '%s'", brief)
				}
				runInside(t, m, "verbs", flags)
			})
			t.Run("sdp", func(t *testing.T) { runInside(t, m, "inside", times+" -test.skip TestLinkDeleted") })
			t.Run("http", func(t *testing.T) { testHTTP(t, m) })
			t.Run("faults", func(t *testing.T) { testFaults(t, m) })
			t.Run("link deleted", func(t *testing.T) {
				output := m.Run(t, fmt.Sprintf(
					"%sVERBS_DELETE='sleep 1; rdma link delete %s0' ./inside.test -test.v -test.run TestLinkDeleted", atGuest, device.name))
				assert.Contains(t, output, "--- PASS: TestLinkDeleted")
			})
		})
	}
	// A device of rxe or siw that is open goes only as far that another driver can have
	// its address.
	for _, way := range [][2]string{{"rxe", "siw"}, {"siw", "rxe"}} {
		t.Run(way[0]+" replaced", func(t *testing.T) {
			m.Run(t, "[[ -e /sys/module/siw ]] || insmod /lib/modules/$(uname -r)/siw/siw")
			// A device that is being deleted goes when the process before has ended.
			m.Run(t, `until [[ -z $(rdma link) ]]; do
				rdma link delete "$(rdma link | sed 's/^link //; s,/.*,,; q')" || sleep 0.1
			done`)
			m.Run(t, fmt.Sprintf("rdma link add old type %s netdev eth0", way[0]))
			output := m.Run(t, fmt.Sprintf(
				"%sVERBS_TAKE='rdma link delete old' VERBS_GIVE='rdma link add new type %s netdev eth0' ./verbs.test -test.v -test.run TestDeviceReplaced", atGuest, way[1]))
			assert.Contains(t, output, "--- PASS: TestDeviceReplaced")
			m.Run(t, "rdma link delete new")
		})
	}
}

// TestByReference: what siw has said to be sent, TCP may still have to send, and not
// have copied (see rdma/verbs). Here it has not, and takes its time.
func TestByReference(t *testing.T) {
	m := lab.Boot(t, lab.Config{})
	m.Copy(t, buildTest(t, "rdma/verbs"))
	m.Copy(t, buildTest(t, "test/lab/inside"))
	m.Run(t, "siw siw-by-reference; tc qdisc add dev lo root netem delay 30ms limit 10000")
	runInside(t, m, "verbs", "-test.run 'Test(ReusedRing|ReusedMemory|ForeignMemory)$'")
	runInside(t, m, "inside", "-test.run 'Test(Stream|ZeroCopy|ReusedBuffers)$'")
}

const atGuest = "export VERBS_ADDRESS=" + lab.Guest + "; "

// times is how often each test inside runs, for make repeat-lab.
var times = "-test.count " + cmp.Or(os.Getenv("GOSDP_LAB_TIMES"), "1")

// brief leaves out of the conformance suite what moves the most bytes.
const brief = "Test(Probe|Reaches|Token|NobodyListens|NobodyAnswers|DialTakesTooLong|Kept|ReusedRing|ReusedMemory|ForeignMemory|Fork)$|TestConformance/(Send|Violation|Room|Drain|Teardown|Protection)"

// unmet is what the conformance suite asks for and a NIC does not have: its driver
// counts STags up, and InfiniBand and RoCE invalidate nothing remotely. Each
// connection has a protection domain of its own, so that the STags of one mean
// nothing on another, which the suite checks too.
// The cache's own tests need no device, and have run outside.
var unmet = []string{"TestConformance/Protection/STags", "TestConformance/Invalidate/ByPeer", "TestCache"}

// unmetBySiw is what siw does not do besides. It ends a connection on which the
// peer names an unknown STag, or reads what it may not, and does not always say that this
// was the reason; after a Read without the right it ends only the peer's end, and
// ours when that closes. And it takes a region back while it is still moving a
// segment, or answering a Read, which a device may not.
var unmetBySiw = []string{
	"TestConformance/Protection/Write/(UnknownSTag|NextSTag|NoSTag|Wraps|EndsAtTheTop|Invalidated)",
	"TestConformance/Protection/Read/",
	"TestConformance/Protection/OtherConnection",
	"TestConformance/Invalidate/While",
	"TestConformance/Teardown/Regions",
	"TestApart/Invalidate",
}

// buildTest compiles the tests of a package, and returns the program's path.
func buildTest(t testing.TB, pkg string) string {
	t.Helper()
	path := filepath.Join(programs, filepath.Base(pkg)+".test")
	build := exec.Command("go", "test", "-c", "-o", path, "github.com/gosdp/gosdp/"+pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return path
}

// TestNotLinked: examples/http has rdma/verbs in it, and does not link the libraries.
func TestNotLinked(t *testing.T) {
	if os.Getenv("GOSDP_LAB") == "" {
		t.Skip("not beside the RDMA lab: GOSDP_LAB is not set")
	}
	path := buildHTTP(t)
	linked, err := exec.Command("ldd", path).CombinedOutput()
	require.NoError(t, err, "%s", linked)
	require.NotContains(t, string(linked), "ibverbs")
}

// buildHTTP builds examples/http, and returns the program's path.
func buildHTTP(t testing.TB) string {
	t.Helper()
	path := filepath.Join(programs, "http")
	build := exec.Command("go", "build", "-o", path, "./http")
	build.Dir, build.Env = "../../examples", append(os.Environ(), "CGO_ENABLED=1")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return path
}

// testHTTP has examples/http serve files to itself, which compares every byte. Both
// processes have the hardware and no other device, so that what either says of a
// connection is true of both. One connection, and more than one attempt: a channel
// that does not come up within half a second, of an emulated processor's, is plain
// TCP's, and that is right.
func testHTTP(t *testing.T, m *lab.Machine) {
	output := m.Run(t, fmt.Sprintf(`
		mkdir -p /tmp/tree/deep/er && cp /bin/bash /bin/busybox /tmp/tree && cp /init /tmp/tree/deep/er/ && touch /tmp/tree/empty
		for i in {1..10}; do
			SDP_DEVICES=verbs timeout 60 ./http -host %s -conns 1 -dir /tmp/tree && break
		done`, lab.Guest))
	assert.Regexp(t, `(?m)^ *sdp +verbs +1 +4 +[0-9]+ .* 0 *$`, output)
	t.Log(output)
}

// testFaults is package faults, but for the faults that are of certain devices or of the
// machine's memory: processes are stopped and killed under load, and have one processor
// and a collector that never rests. With -short it is the least of that.
func testFaults(t *testing.T, m *lab.Machine) {
	run := "Test(Stopped|ServerIsKilled|ClientIsKilled|Environments)$"
	if testing.Short() {
		run = "Test(Stopped|Environments)$/^(verbs|one_processor,_and_the_collector)$"
	}
	output := m.Run(t, fmt.Sprintf(
		"FAULTS_DEVICES=verbs FAULTS_ADDRESS=%s FAULTS_MOST=300000 ./faults.test -test.short -test.v -test.run '%s'", lab.Guest, run))
	require.Contains(t, output, "--- PASS: TestEnvironments")
	require.Contains(t, output, "\nPASS\n")
}

// runInside runs a test program, none of which may be skipped for want of hardware.
func runInside(t *testing.T, m *lab.Machine, program, flags string) {
	t.Helper()
	output := m.Run(t, fmt.Sprintf(atGuest+"./%s.test -test.v %s", program, flags))
	require.NotContains(t, output, "no RDMA device is named")
	require.Contains(t, output, "\nPASS\n")
}
