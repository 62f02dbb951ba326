package rdmatest

import (
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// faultVariable has TestModel run against a model with this fault.
const faultVariable = "RDMATEST_FAULT"

func TestMain(m *testing.M) {
	// TestSuiteNotices is parallel alone, and its processes mostly wait.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	m.Run()
}

func modelPair(elastic bool, f fault) Pair {
	return func(*testing.T) (a, b rdma.QueuePair) { return newModel(elastic, f) }
}

// The suite passes a device that keeps the contract.
func TestModel(t *testing.T) {
	f := fault(os.Getenv(faultVariable))
	if f != sound {
		patience = 2 * time.Second
	}
	Run(t, modelPair(true, f))
}

// And one whose receive buffers cannot change under a message.
func TestRigidModel(t *testing.T) { Run(t, modelPair(false, sound)) }

// A suite that cannot fail proves nothing: each of these faults fails the check
// that is there for it, in a process of its own.
func TestSuiteNotices(t *testing.T) {
	for _, c := range []struct {
		fault fault
		check string
	}{
		{reorders, "Send/LargeInOrder"},
		{losesMessage, "Send/SmallInOrder"},
		{truncates, "Send/Boundaries"},
		{keepsPayload, "Send/Batches"},
		{keepsPayload, "Send/Splits"},
		{overrunIgnored, "Lend/CountsLent"},
		{reusesLent, "Lend/Intact"},
		{reusesLent, "Lend/AfterClose"},
		{overrunIgnored, "Violation/TooMany"},
		{overrunIgnored, "Violation/TooManyUnread"},
		{lengthIgnored, "Violation/TooLong"},
		{freshError, "Violation/TooMany"},
		{placesLate, "Write/BeforeSend"},
		{rightsIgnored, "Protection/Write/NoRight"},
		{rightsIgnored, "Protection/Read/NoRight"},
		{oneTooMany, "Protection/Write/OneMore"},
		{oneTooMany, "Protection/Read/OneMore"},
		{oneTooMany, "Protection/Write/OneBehind"},
		{oneTooEarly, "Protection/Write/OneBefore"},
		{oneTooEarly, "Protection/Read/OneBefore"},
		{wrapsAround, "Protection/Write/WrapsInto"},
		{wrapsAround, "Protection/Read/WrapsInto"},
		{sharesSTags, "Protection/OtherConnection"},
		{countsSTags, "Protection/STags"},
		{staysExposed, "Protection/Read/Invalidated"},
		{staysExposed, "Invalidate/WhileWritten"},
		{staysExposed, "Invalidate/WhileRead"},
		{foreignRevoked, "Invalidate/ByPeerForeign"},
		{foreignRevoked, "Invalidate/ByPeerTwice"},
		{spins, "Wait/Parks"},
		{losesWake, "Wait/WakeBefore"},
		{losesWake, "Wait/WakeDuring"},
		{pollTakesWake, "Wait/WakeSurvivesPoll"},
		{losesWakeRoom, "Room/WakeRoom"},
		{roomIdles, "Room/RoomCarries"},
		{flushIdles, "Room/FlushCarries"},
		{blocksWhenBusy, "Room/Backpressure"},
		{refusesBare, "Room/BareWhenBusy"},
		{boundless, "Room/BareIsBounded"},
		{drainsNothing, "Drain/Backlog"},
		{drainsNothing, "Drain/Deadline"},
		{drainsForever, "Drain/Deadline"},
		{closeOvertakes, "Drain/ReadAfterwards"},
		{abortsKindly, "Teardown/Idle"},
		{leaks, "Teardown/Idle"},
		{losesMessage, "Flood/Both"},
		{losesMessage, "Flood/OneGoroutineEach"},
		{allocates, "Allocations/Send"},
	} {
		t.Run(string(c.fault)+"/"+c.check, func(t *testing.T) {
			t.Parallel()
			if c.fault == allocates {
				skipUnderRace(t)
			}
			expectNoticed(t, c.fault, "TestModel/"+c.check)
		})
	}
}

// expectNoticed runs one check against a broken model.
func expectNoticed(t *testing.T, f fault, check string) {
	t.Helper()
	pattern := "^" + strings.ReplaceAll(check, "/", "$/^") + "$"
	cmd := exec.Command(os.Args[0], "-test.run="+pattern)
	cmd.Env = append(os.Environ(), faultVariable+"="+string(f))
	output, err := cmd.CombinedOutput()
	for _, verdict := range []string{"--- FAIL: " + check + " ", "rdmatest: " + check + " hangs"} {
		if err != nil && strings.Contains(string(output), verdict) {
			return
		}
	}
	t.Errorf("not noticed (%v):\n%s", err, output)
}

func BenchmarkModel(b *testing.B) {
	Benchmark(b, func(*testing.B) (x, y rdma.QueuePair) { return newModel(true, sound) })
}
