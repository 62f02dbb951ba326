// Package rdmatest is the conformance suite for RDMA devices: what the comments of package rdma
// promise, as subtests.
//
// A device's own test makes connected pairs and passes them to the suite:
//
//	func TestConformance(t *testing.T) {
//		rdmatest.Run(t, func(t *testing.T) (a, b rdma.QueuePair) { … })
//	}
//
// RunAllocs checks that messages cause no allocations. RunApart runs the two ends in two processes, to find what they share by mistake.
//
// Sizes and contents are random. The seed is logged, and the environment variable RDMATEST_SEED
// repeats it.
package rdmatest

import (
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

// Pair makes two connected queue pairs in this process, or fails the test. The suite closes them. a
// may send first; what b sends may have to wait for that.
type Pair func(t *testing.T) (a, b rdma.QueuePair)

// check is one subtest.
type check struct {
	name string
	run  func(t *testing.T, pair Pair)
}

// subjects are the suite, in the order in which a new device will pass it.
var subjects = []struct {
	name   string
	checks []check
}{
	{"Send", sendChecks},
	{"Lend", lendChecks},
	{"Violation", violationChecks},
	{"Write", writeChecks},
	{"Read", readChecks},
	{"Protection", protectionChecks},
	{"Register", registerChecks},
	{"Invalidate", invalidateChecks},
	{"Wait", waitChecks},
	{"Room", roomChecks},
	{"Prompt", promptChecks},
	{"Drain", drainChecks},
	{"Teardown", teardownChecks},
	{"Optional", optionalChecks},
	{"Flood", floodChecks},
}

// Run checks a device. It must not run concurrently with other tests of the process, because it
// counts goroutines.
func Run(t *testing.T, pair Pair) {
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) { runChecks(t, s.checks, pair) })
	}
}

func runChecks(t *testing.T, checks []check, pair Pair) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			guard(t)
			c.run(t, pair)
		})
	}
}
