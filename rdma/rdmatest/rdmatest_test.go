package rdmatest

import (
	"flag"
	"os"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

// faultVariable is the environment variable that names the fault of TestModel's device.
const faultVariable = "RDMATEST_FAULT"

func TestMain(m *testing.M) {
	// No other test runs concurrently with TestSuiteNotices, and its processes mostly wait.
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
	runModel(t, true)
}

// runModel runs the suite against a model, with a fault if the environment names one.
func runModel(t *testing.T, elastic bool) {
	Run(t, modelPair(elastic, fault(os.Getenv(faultVariable))))
}

// So does one whose receive buffers cannot change size under a message.
func TestRigidModel(t *testing.T) { runModel(t, false) }

// So does one with the defaults of rdma.Base.
func TestPlainModel(t *testing.T) {
	runChecks(t, optionalChecks, func(*testing.T) (rdma.QueuePair, rdma.QueuePair) {
		a, b := newModel(true, sound)
		return plainEnd{a}, plainEnd{b}
	})
}

// A suite that cannot fail proves nothing: each of these faults fails the check that is meant for it,
// in a process of its own.
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
		{oneTooMany, "Protection/Write/OneAfter"},
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
		{readsOn, "Teardown/Reads"},
		{closesAsPeer, "Teardown/Idle"},
		{closesAsPeer, "Teardown/CallsAfterwards"},
		{closesAsPeer, "Teardown/Streaming/Close/a"},
		{registersAlone, "Register/Concurrent"},
		{registersAlone, "Invalidate/WhileRegistering"},
		{registersClosed, "Teardown/CallsAfterwards"},
		{sendsLate, "Prompt/NeverBlocks"},
		{invalidatesLate, "Prompt/Invalidate"},
		{wakesItself, "Wait/OnlyForReason"},
		{releasesTwo, "Lend/PostsReleased"},
		{idlesTooMuch, "Optional/Idle"},
		{losesLost, "Optional/Lost"},
		{lostAsPeer, "Optional/Lost"},
		{finishesEarly, "Optional/FinishBacklog"},
		{finishesNever, "Optional/FinishEnded"},
		{finishesLate, "Optional/FinishBacklog"},
		{undeclared, "Optional/Lost"},
		{undeclared, "Optional/Finish"},
		{widens, "Optional/Width"},
	} {
		t.Run(string(c.fault)+"/"+c.check, func(t *testing.T) {
			t.Parallel()
			variable := faultVariable + "=" + string(c.fault)
			ExpectNoticed(t, "TestModel/"+c.check, variable)
			if c.fault == releasesTwo {
				ExpectNoticed(t, "TestRigidModel/"+c.check, variable)
			}
		})
	}
}

// TestAllocsModel: the model recycles its parcels.
func TestAllocsModel(t *testing.T) { RunAllocs(t, modelPair(true, fault(os.Getenv(faultVariable)))) }

func TestAllocsNotices(t *testing.T) {
	if raceEnabled {
		t.Skip("missing: a build without the race detector, in which TestAllocsModel is skipped")
	}
	ExpectNoticed(t, "TestAllocsModel", faultVariable+"="+string(allocates))
}

func BenchmarkModel(b *testing.B) {
	Benchmark(b, func(*testing.B) (x, y rdma.QueuePair) { return newModel(true, sound) })
}
