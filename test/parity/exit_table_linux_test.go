package parity

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	runsFlag  = flag.Int("runs", 0, "number of runs per cell of the exit table; 0 means 4, or 1 with -short")
	writeFlag = flag.Bool("write", false, "write the exit table to docs/exit.md")
)

// exitDocument is the page with the table.
const exitDocument = "../../docs/exit.md"

// cell of the exit table sums up the runs of one row, ending and stack.
type cell struct {
	runs, complete int
	lost           int // the largest number of bytes that a run lost
	ends           map[string]int
}

func (c *cell) add(o outcome, total int) {
	c.runs++
	if o.got == total {
		c.complete++
	}
	c.lost = max(c.lost, total-o.got)
	if c.ends == nil {
		c.ends = map[string]int{}
	}
	c.ends[o.end]++
}

// String formats the cell for the page.
func (c *cell) String() string {
	var ends []string
	for _, end := range slices.Sorted(maps.Keys(c.ends)) {
		n := ""
		if c.ends[end] != c.runs {
			n = fmt.Sprint(c.ends[end], " ")
		}
		ends = append(ends, n+strings.TrimPrefix(end, "read "))
	}
	s := fmt.Sprintf("%d of %d, %s", c.complete, c.runs, strings.Join(ends, " and "))
	if c.lost > 0 {
		s += fmt.Sprintf("; up to %d B lost", c.lost)
	}
	return s
}

// TestExitTable runs every row of the table, with every ending, over every stack.
func TestExitTable(t *testing.T) {
	runs := *runsFlag
	if runs == 0 {
		runs = 4
		if testing.Short() {
			runs = 1
		}
	}
	cells := map[exitRun]*cell{}
	failed := false
	var mu sync.Mutex
	var running sync.WaitGroup
	slots := newSlots()
	for _, e := range allExitRuns() {
		c := new(cell)
		cells[e] = c
		for range runs {
			running.Go(func() {
				o := e.do(slots)
				mu.Lock()
				defer mu.Unlock()
				if o.err != nil {
					failed = true
					t.Errorf("%s: %v", e, o.err)
					return
				}
				c.add(o, exitRows[e.row].total())
			})
		}
	}
	running.Wait()
	for _, e := range allExitRuns() {
		t.Logf("%s: %s", e, cells[e])
	}
	for _, w := range wrongExits(cells) {
		t.Error(w)
	}
	if *writeFlag && !failed {
		require.NoError(t, os.WriteFile(exitDocument, []byte(exitPage(cells)), 0o644))
	}
}

// allExitRuns returns one run for each cell of the table. Runs with pauses come first, so that
// others run during their pauses.
func allExitRuns() (all []exitRun) {
	for _, pausing := range []bool{true, false} {
		for i := range exitRows {
			if (exitRows[i].pause > 0) != pausing {
				continue
			}
			for ending := range endings {
				for _, k := range stacks() {
					if exitRows[i].acceptLate > 0 && k.name == "iwarp" {
						continue // a Dial gets its Reply from the listener's Accept
					}
					all = append(all, exitRun{k.name, i, ending})
				}
			}
		}
	}
	return all
}

func (e exitRun) String() string {
	return fmt.Sprintf("%s, %s, %s", exitRows[e.row].name, endings[e.ending], exitStack(e.stack))
}

// exitStack returns the name of a stack in the table.
func exitStack(name string) string {
	if name == "net" {
		return "tcp"
	}
	return name
}

// wrongExits returns which promises the cells break.
func wrongExits(cells map[exitRun]*cell) (wrong []string) {
	for _, e := range allExitRuns() {
		c := cells[e]
		if exitRows[e.row].promised(e.stack) && c.complete < c.runs {
			wrong = append(wrong, fmt.Sprintf("%s: %s; want every byte in all runs", e, c))
		}
		if e.stack == "shm" && c.ends["EOF"] != c.runs {
			wrong = append(wrong, fmt.Sprintf("%s: %s; want EOF at the end", e, c))
		}
	}
	return wrong
}
