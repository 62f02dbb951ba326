package main

import (
	"errors"
	"time"

	"github.com/gosdp/gosdp/bench/internal/harness"
	"github.com/gosdp/gosdp/bench/internal/machine"
	"github.com/gosdp/gosdp/bench/internal/report"
)

// A plan says how long to measure, and with what.
type plan struct {
	rounds   int
	turn     time.Duration // of one contender in one round
	patience time.Duration // with a case whose rounds are disturbed
	hurry    bool          // then do with fewer rounds, too
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
	total, rounds := fullTime, fullRounds
	if quick {
		total, rounds = quickTime, quickRounds
	}
	each := total / time.Duration(cases)
	turn := each / time.Duration(contenders*(rounds+1))
	return &plan{
		rounds:   rounds,
		turn:     min(max(turn, shortestTurn), longestTurn),
		patience: each * 5 / 4,
		hurry:    quick,
	}
}

// A result is what a case has come to.
type result struct {
	rows   []report.Row
	failed []report.Failure
	kept   report.CaseKept
}

// A runner is one contender while a case is being measured.
type runner struct {
	name string
	*harness.Runner
}

// measure lets the contenders take turns under the load, A B C A B C, so that a
// machine that slows down slows all of them. A contender that fails is out. It
// tells how many rounds have been done.
func (p *plan) measure(load harness.Case, entrants []entrant, done func(rounds int)) (result, error) {
	var res result
	start := time.Now()
	runners := p.start(load, entrants, &res)
	defer func() {
		for _, r := range runners {
			r.Close()
		}
	}()
	var all []report.Round
	for p.more(all, time.Since(start)) && len(runners) > 0 {
		round, failed, err := p.round(load, runners)
		if err != nil {
			return res, err
		}
		if failed == nil {
			all = append(all, round)
			done(len(all))
			continue
		}
		// Without the one that failed the rounds before are as good as they were.
		i := failed.index
		res.fail(runners[i].name, load, failed.err)
		runners[i].Close()
		runners = append(runners[:i], runners[i+1:]...)
		for k := range all {
			all[k].Samples = append(all[k].Samples[:i], all[k].Samples[i+1:]...)
		}
	}
	var names []string
	for _, r := range runners {
		names = append(names, r.name)
	}
	kept, count := report.Keep(all, p.rounds)
	res.kept = report.CaseKept{Case: load.Name(), Kept: count}
	if len(kept) > 0 {
		res.rows = report.Summarize(load, names, kept)
	}
	return res, nil
}

// more tells whether another round is worth its time: there are too few, or too
// few that were not disturbed and there is patience left. There are never more
// than twice as many as wanted.
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
	case p.hurry:
		return len(all) < 3
	default:
		return len(all) < p.rounds
	}
}

// start has every contender's processes ready for their first turn.
func (p *plan) start(load harness.Case, entrants []entrant, res *result) (runners []*runner) {
	for _, e := range entrants {
		r, err := p.startOne(load, e)
		if err != nil {
			res.fail(e.name, load, err)
			continue
		}
		runners = append(runners, r)
	}
	return runners
}

func (p *plan) startOne(load harness.Case, e entrant) (*runner, error) {
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

// fail takes note of a contender that failed.
func (r *result) fail(name string, load harness.Case, err error) {
	r.failed = append(r.failed, report.Failure{Contender: name, Case: load.Name(), Why: err.Error()})
}
