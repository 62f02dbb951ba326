package main

import (
	"errors"
	"slices"
	"time"

	"github.com/gosdp/gosdp/bench/internal/harness"
	"github.com/gosdp/gosdp/bench/internal/machine"
	"github.com/gosdp/gosdp/bench/internal/report"
)

// A plan holds the time limits and settings of a benchmark.
type plan struct {
	passes   int           // through all cases
	rounds   int           // of a case in each pass
	turn     time.Duration // of one contender in one round
	patience time.Duration // time for repeating disturbed rounds of a case, in each pass
	limit    time.Duration // for a case in a pass, even with too few rounds; 0 means no limit
	profiles string        // directory for CPU profiles; "" means none
	line     *machine.Line
	lines    []time.Duration // all that were measured
}

// Limits for the length of a turn, whatever time is available.
const (
	shortestTurn = 10 * time.Millisecond
	longestTurn  = 200 * time.Millisecond
)

// newPlan divides the available time between all turns. It counts the calibration
// of each contender as one more round.
func newPlan(quick bool, cases, contenders int) *plan {
	p := &plan{passes: fullPasses, rounds: fullRounds}
	total := fullTime
	if quick {
		p.passes, p.rounds, total = quickPasses, quickRounds, quickTime
	}
	each := total / time.Duration(cases*p.passes)
	p.turn = min(max(each/time.Duration(contenders*(p.rounds+1)), shortestTurn), longestTurn)
	p.patience = each * 5 / 4
	if quick {
		p.limit = each * 2
	}
	return p
}

// A run holds the results of one case over all passes.
type run struct {
	load         harness.Case
	participants []participant // that have not failed
	rounds       []report.Round
	failed       []report.Failure
}

// A runner is one contender while a case is being measured.
type runner struct {
	name string
	*harness.Runner
}

// pass makes the contenders take turns under the load (A B C A B C), so that a
// change in the machine's speed affects all of them. It drops a contender that
// fails. It calls done with the number of completed rounds.
func (p *plan) pass(r *run, done func(rounds int)) error {
	began := time.Now()
	var runners []*runner
	defer func() {
		for _, r := range runners {
			r.Close()
		}
	}()
	for i := 0; i < len(r.participants); {
		runner, err := p.start(r.load, r.participants[i])
		if err != nil {
			r.drop(i, err)
			continue
		}
		runners = append(runners, runner)
		i++
	}
	first := len(r.rounds)
	for len(runners) > 0 && p.needsRound(r.rounds[first:], time.Since(began)) {
		round, failed, err := p.round(r.load, runners)
		if err != nil {
			return err
		}
		if failed != nil {
			runners[failed.index].Close()
			runners = slices.Delete(runners, failed.index, failed.index+1)
			r.drop(failed.index, failed.err)
			continue
		}
		r.rounds = append(r.rounds, round)
		done(len(r.rounds) - first)
	}
	return nil
}

// drop removes the i-th contender, and its samples from earlier rounds. The other
// samples of those rounds stay valid.
func (r *run) drop(i int, err error) {
	r.failed = append(r.failed, report.Failure{Contender: r.participants[i].name, Case: r.load.Name(), Why: err.Error()})
	r.participants = slices.Delete(r.participants, i, i+1)
	for k := range r.rounds {
		r.rounds[k].Samples = slices.Delete(r.rounds[k].Samples, i, i+1)
	}
}

// rows summarizes at most want of the rounds.
func (r *run) rows(want int) ([]report.Row, report.CaseKept) {
	kept, count := report.Keep(r.rounds, want)
	var names []string
	for _, e := range r.participants {
		names = append(names, e.name)
	}
	var rows []report.Row
	if len(kept) > 0 {
		rows = report.Summarize(r.load, names, kept)
	}
	return rows, report.CaseKept{Case: r.load.Name(), Kept: count}
}

// needsRound reports whether to make another round in this pass. It does so while
// there are too few undisturbed rounds and patience lasts, and after that while
// there are too few rounds of any kind. It never makes more than twice as many as
// wanted.
func (p *plan) needsRound(all []report.Round, spent time.Duration) bool {
	quiet := 0
	for _, r := range all {
		if !r.Disturbed() {
			quiet++
		}
	}
	switch {
	case quiet >= p.rounds || len(all) >= 2*p.rounds:
		return false
	case spent < p.patience:
		return true
	case p.limit > 0 && spent > p.limit:
		return len(all) < 3
	default:
		return len(all) < p.rounds
	}
}

// start starts a contender's processes and calibrates its turns.
func (p *plan) start(load harness.Case, e participant) (*runner, error) {
	pair, err := harness.StartPair(e.Contender, load)
	if err != nil {
		return nil, err
	}
	r, err := harness.NewRunner(pair, p.turn)
	if err == nil && p.profiles != "" {
		err = pair.Profile(p.profiles, e.name+"-"+load.Name())
	}
	if err != nil {
		return nil, errors.Join(err, pair.Close())
	}
	return &runner{e.name, r}, nil
}

// A failure is a contender that failed during a round.
type failure struct {
	index int
	err   error
}

// round lets each contender take a turn, and measures the cache line before and
// after each turn.
func (p *plan) round(load harness.Case, runners []*runner) (round report.Round, failed *failure, err error) {
	watch, err := startWatch(runners)
	if err != nil {
		return round, nil, err
	}
	before := p.measureLine()
	for i, r := range runners {
		turn, err := r.Turn()
		if err != nil {
			return round, &failure{i, err}, nil
		}
		after := p.measureLine()
		round.Samples = append(round.Samples, report.Sample{
			Metrics:    load.Metrics(turn),
			LineBefore: before,
			LineAfter:  after,
		})
		before = after
	}
	round.Foreign, err = watch.foreign(runners)
	return round, nil, err
}

func (p *plan) measureLine() time.Duration {
	line := p.line.RoundTrip()
	p.lines = append(p.lines, line)
	return line
}
