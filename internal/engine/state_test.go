package engine

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A transition is a method of a state, with the states that permit it and where it leads from each.
type transition[S comparable] struct {
	name string
	make func(*S)
	to   map[S]S
}

// walk makes each transition in each of the states 0 to n-1. Those that are not in the table must
// panic and change nothing. Every state must be reachable from the first.
func walk[S interface {
	~uint8
	fmt.Stringer
}](t *testing.T, n int, transitions []transition[S]) {
	reached := map[S]bool{0: true}
	for range n {
		for from := range maps.Clone(reached) {
			for _, tr := range transitions {
				if to, ok := tr.to[from]; ok {
					reached[to] = true
				}
			}
		}
	}
	assert.Len(t, reached, n, "states that can be reached")
	names := make(map[string]bool)
	for from := range S(n) {
		names[from.String()] = true
		for _, tr := range transitions {
			state := from
			to, permitted := tr.to[from]
			if permitted {
				assert.NotPanics(t, func() { tr.make(&state) }, "%s in %v", tr.name, from)
				assert.Equal(t, to, state, "%s in %v", tr.name, from)
				continue
			}
			assert.PanicsWithValue(t, fmt.Sprintf("sdp: transition %s in state %v", tr.name, from),
				func() { tr.make(&state) }, "%s in %v", tr.name, from)
			assert.Equal(t, from, state, "%s in %v", tr.name, from)
		}
	}
	assert.Len(t, names, n, "names")
}

// TestPhases walks through all transitions of a connection's phase.
func TestPhases(t *testing.T) {
	walk(t, phases, []transition[phase]{
		{"closeRead", (*phase).closeRead, map[phase]phase{
			open: readClosed, readClosed: readClosed, writeClosed: bothClosed, bothClosed: bothClosed}},
		{"closeWrite", (*phase).closeWrite, map[phase]phase{
			open: writeClosed, writeClosed: writeClosed, readClosed: bothClosed, bothClosed: bothClosed}},
		{"close", (*phase).close, map[phase]phase{
			open: stepping, readClosed: stepping, writeClosed: stepping, bothClosed: stepping}},
		{"drain", (*phase).drain, map[phase]phase{stepping: draining}},
		{"drained", (*phase).drained, map[phase]phase{draining: stepping}},
		{"wait", (*phase).wait, map[phase]phase{stepping: waiting}},
		{"resume", (*phase).resume, map[phase]phase{waiting: stepping}},
		{"conclude", (*phase).conclude, map[phase]phase{stepping: concluded}},
	})
}

// TestPhaseQuestions: what the calls of a connection ask of its phase.
func TestPhaseQuestions(t *testing.T) {
	for _, v := range []struct {
		name string
		ask  func(phase) bool
		not  []phase
	}{
		{"readClosed", phase.readClosed, []phase{open, writeClosed}},
		{"writeClosed", phase.writeClosed, []phase{open, readClosed}},
		{"bothClosed", phase.bothClosed, []phase{open, readClosed, writeClosed}},
		{"closed", phase.closed, []phase{open, readClosed, writeClosed, bothClosed}},
	} {
		for p := range phase(phases) {
			assert.Equal(t, !slices.Contains(v.not, p), v.ask(p), "%s in %v", v.name, p)
		}
	}
}

// TestHealth walks through all transitions of a connection's health.
func TestHealth(t *testing.T) {
	walk(t, healths, []transition[health]{
		{"fail", (*health).fail, map[health]health{healthy: failed, failed: failed, violated: violated}},
		{"violate", (*health).violate, map[health]health{healthy: violated}},
	})
}

// TestLeader walks through all transitions of a connection's leader.
func TestLeader(t *testing.T) {
	walk(t, leaders, []transition[leader]{
		{"poll", (*leader).poll, map[leader]leader{nobody: polling}},
		{"park", (*leader).park, map[leader]leader{nobody: parked}},
		{"unpark", (*leader).unpark, map[leader]leader{parked: polling}},
		{"resign", (*leader).resign, map[leader]leader{polling: nobody}},
	})
}

// TestBackground walks through all transitions of the background poller.
func TestBackground(t *testing.T) {
	walk(t, backgrounds, []transition[background]{
		{"start", (*background).start, map[background]background{absent: running}},
		{"retire", (*background).retire, map[background]background{running: retiring}},
		{"keep", (*background).keep, map[background]background{absent: absent, running: running, retiring: running}},
		{"end", (*background).end, map[background]background{running: absent, retiring: absent}},
	})
}
