//go:build linux

package spin

import (
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRunnable: with one P, a goroutine that was started waits for it until this one yields.
func TestRunnable(t *testing.T) {
	if runnable(); runnableCount.sample[0].Value.Kind() == metrics.KindBad {
		t.Skip("missing: a count of the goroutines that wait for a P, before Go 1.26")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !stop.Load() {
			runtime.Gosched()
		}
	}()
	for range 100 {
		assert.True(t, runnable())
		runtime.Gosched()
	}
	stop.Store(true)
	<-ended
	require.Eventually(t, func() bool { return !runnable() }, time.Minute, time.Millisecond, "a goroutine always waits for a P")
}

// TestStepsYield: steps that read memory yield to the process only if goroutines wait for a P.
func TestStepsYield(t *testing.T) {
	formerYield, formerRunnable := yield, runnable
	defer func() { yield, runnable = formerYield, formerRunnable }()
	yields := 0
	yield = func() { yields++ }
	for _, some := range []bool{false, true} {
		runnable = func() bool { return some }
		yields = 0
		s := stepper{memory: true}
		for range 4 * stepGosched {
			s.step()
		}
		if some {
			assert.Equal(t, 4, yields)
		} else {
			assert.Zero(t, yields)
		}
	}
}
