package sim

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
)

var (
	seeds = flag.Int("seeds", defaultSeeds, "how many seeds to run")
	steps = flag.Int("steps", 1000, "steps of each")
	seed  = flag.Uint64("seed", 0, "run this one alone, and with -v print all that happens")
)

// TestSeeds runs the seeds from 1, or the one that was asked for.
func TestSeeds(t *testing.T) {
	if *seed != 0 {
		var trace func(string)
		if testing.Verbose() {
			trace = func(line string) { fmt.Println(line) }
		}
		if err := try(*seed, *steps, new(stats), trace); err != nil {
			t.Fatal(err)
		}
		return
	}
	var mu sync.Mutex
	var all stats
	t.Run("shares", func(t *testing.T) {
		shares := runtime.GOMAXPROCS(0)
		for share := range shares {
			t.Run(fmt.Sprint(share), func(t *testing.T) {
				t.Parallel()
				var s stats
				failed := 0
				for n := 1 + share; n <= *seeds && failed < 5; n += shares {
					if err := try(uint64(n), *steps, &s, nil); err != nil {
						t.Errorf("%v\nreplay: go test ./test/sim -run Seed -seed %d -steps %d -v", err, n, *steps)
						failed++
					}
				}
				mu.Lock()
				all.add(&s)
				mu.Unlock()
			})
		}
	})
	t.Logf("%d seeds of %d steps:\n%v", *seeds, *steps, &all)
	if t.Failed() || *seeds < 1000 || *steps < 1000 {
		return
	}
	names, numbers := all.lines()
	for i, n := range numbers {
		if n < 50 {
			t.Errorf("%s happened %d times only", names[i], n)
		}
	}
}

// TestDeterministic: a seed that fails fails again.
func TestDeterministic(t *testing.T) {
	for n := range uint64(5) {
		var traces [2][]string
		for i := range traces {
			var s stats
			if err := try(n, *steps, &s, func(line string) { traces[i] = append(traces[i], line) }); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(traces[0], traces[1]) {
			t.Fatalf("seed %d has gone two ways", n)
		}
	}
}
