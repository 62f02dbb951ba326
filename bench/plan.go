package main

import (
	"errors"
	"slices"
	"time"

	"github.com/gosdp/gosdp/bench/internal/harness"
	"github.com/gosdp/gosdp/bench/internal/machine"
	"github.com/gosdp/gosdp/bench/internal/report"
)

// A plan says how long to measure, and with what.
type plan struct {
	passes   int           // through all cases
	rounds   int           // of a case in each pass
	turn     time.Duration // of one contender in one round
	patience time.Duration // with a case whose rounds are disturbed, in each pass
	limit    time.Duration // for a case in a pass, then with fewer rounds; 0 for none
	profiles string        // where processes leave their profiles, "" for none
	line     *machine.Line
	lines    []time.Duration // all that were measured
}

// A turn has these lengths, however much or little there is to do.
const (
	shortestTurn = 10 * time.Millisecond
	longestTurn  = 200 * time.Millisecond
)

// newPlan divides the time between all turns, those that find out how much a
// turn can hold among them.
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

// A run is one case, from its first pass to its last one.
type run struct {
	load     harness.Case
	entrants []entrant // that have not failed
	rounds   []report.Round
	failed   []report.Failure
}

// A runner is one contender while a case is being measured.
type runner struct {
	name string
	*harness.Runner
}

// pass lets the contenders take turns under the load, A B C A B C, so that a
// machine that slows down slows all of them. A contender that fails is out. It
// tells how many rounds have been done.
func (p *plan) pass(r *run, done func(rounds int)) error {
	began := time.Now()
	var runners []*runner
	defer func() {
		for _, r := range runners {
			r.Close()
		}
	}()
	for i := 0; i < len(r.entrants); {
		runner, err := p.start(r.load, r.entrants[i])
		if err != nil {
			r.out(i, err)
			continue
		}
		runners = append(runners, runner)
		i++
	}
	first := len(r.rounds)
	for len(runners) > 0 && p.more(r.rounds[first:], time.Since(began)) {
		round, failed, err := p.round(r.load, runners)
		if err != nil {
			return err
		}
		if failed != nil {
			runners[failed.index].Close()
			runners = slices.Delete(runners, failed.index, failed.index+1)
			r.out(failed.index, failed.err)
			continue
		}
		r.rounds = append(r.rounds, round)
		done(len(r.rounds) - first)
	}
	return nil
}

// out takes the i-th contender out. Without it the rounds before are as good as
// they were.
func (r *run) out(i int, err error) {
	r.failed = append(r.failed, report.Failure{Contender: r.entrants[i].name, Case: r.load.Name(), Why: err.Error()})
	r.entrants = slices.Delete(r.entrants, i, i+1)
	for k := range r.rounds {
		r.rounds[k].Samples = slices.Delete(r.rounds[k].Samples, i, i+1)
	}
}

// rows are what all rounds have come to, of which no more than want count.
func (r *run) rows(want int) ([]report.Row, report.CaseKept) {
	kept, count := report.Keep(r.rounds, want)
	var names []string
	for _, e := range r.entrants {
		names = append(names, e.name)
	}
	var rows []report.Row
	if len(kept) > 0 {
		rows = report.Summarize(r.load, names, kept)
	}
	return rows, report.CaseKept{Case: r.load.Name(), Kept: count}
}

// more tells whether another round is worth its time: there are too few in this
// pass, or too few that were not disturbed and there is patience left. There are
// never more than twice as many as wanted.
func (p *plan) more(all []report.Round, spent time.Duration) bool {
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

// start has a contender's processes ready for their first turn.
func (p *plan) start(load harness.Case, e entrant) (*runner, error) {
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

// failure is a contender that did not get through a round.
type failure struct {
	index int
	err   error
}

// round lets each contender take a turn, and measures the cache line between
// any two.
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
