package local

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/internal/limits"
	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/stream"
	"github.com/gosdp/gosdp/internal/trigger"
)

// Moves says when the connections of a Dial or a Listen move.
type Moves struct{ *stream.Policy }

// MovesFor returns that of programs that meet in the policy's directory, if it has one, and allows its users
// besides the program's own.
func MovesFor(policy *policy.Policy) Moves {
	if policy.Dir == "" && len(policy.UIDs) == 0 {
		return Moves{defaultPolicy()}
	}
	p := *defaultPolicy()
	p.Dir = policy.Dir
	if len(policy.UIDs) > 0 {
		p.Allow = func(uid uint32) bool { return slices.Contains(policy.UIDs, int(uid)) }
	}
	return Moves{&p}
}

// Addresses learn whether connections live long enough to move at once; see package trigger.
var dials, accepts trigger.Memory[netip.AddrPort]

func memoryOf(dialled bool) *trigger.Memory[netip.AddrPort] {
	if dialled {
		return &dials
	}
	return &accepts
}

var defaultPolicy = sync.OnceValue(func() *stream.Policy {
	p := &stream.Policy{
		Sandboxed: sandboxed,
		Admit:     limits.Admit,
		Take:      budget.Process.TakeSpare,
		Give:      budget.Process.Give,
		At:        func(dialled bool, acceptor netip.AddrPort) int { return memoryOf(dialled).At(acceptor) },
		Learn: func(dialled bool, acceptor netip.AddrPort, lesson trigger.Lesson) {
			memoryOf(dialled).Learn(acceptor, lesson)
		},
	}
	switch policy.Getenv(policy.MoveVariable) {
	case "at-once":
		meeting.TestSelf = true
		p.At = func(bool, netip.AddrPort) int { return 1 }
		p.Learn = nil
	case "at-random":
		meeting.TestSelf = true
		p.Restless = true
	}
	return p
})

// filters is how many seccomp filters the process had when it made its first connection.
var filters = sync.OnceValues(limits.Filters)

// sandboxed returns an error if the program has installed a filter since.
func sandboxed() error {
	now, ok := limits.Filters()
	if before, _ := filters(); ok && now != before {
		return errFiltered
	}
	return nil
}

var errFiltered = errors.New("program has installed a seccomp filter since its first connection")
