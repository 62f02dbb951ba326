package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/gosdp/gosdp/bench/internal/harness"
	"github.com/gosdp/gosdp/bench/internal/machine"
	"github.com/gosdp/gosdp/bench/internal/report"
)

// targetsFile holds what contenders must reach.
//
//go:embed targets.txt
var targetsFile string

// options are the command line's settings.
type options struct {
	quick, json, check      bool
	run                     *regexp.Regexp
	contenders              []string // nil means all that this machine supports
	baseline, dir, profiles string
}

// main measures, prints to out, and writes the report.
func (o options) main(out, progress io.Writer) error {
	targets, err := report.ReadTargets(strings.NewReader(targetsFile))
	if err != nil {
		return fmt.Errorf("targets.txt: %w", err)
	}
	// Find errors in the arguments before the long measurement.
	var earlier *report.Report
	if o.baseline != "" {
		if earlier, err = readReport(o.baseline); err != nil {
			return err
		}
	}
	cases, err := o.cases()
	if err != nil {
		return err
	}
	if o.check {
		if cases, err = withTargets(cases, targets); err != nil {
			return err
		}
		if o.contenders == nil {
			o.contenders = named(targets)
		}
	}
	participants, absent, err := choose(o.contenders)
	if err != nil {
		return err
	}
	for _, dir := range []string{o.dir, o.profiles} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	r, err := o.measure(out, progress, cases, participants, absent)
	if err != nil {
		return err
	}

	var changes []report.Change
	if earlier != nil {
		changes = report.Compare(earlier, r)
	}
	if err := writeFiles(o.dir, r, targets, changes); err != nil {
		return err
	}
	verdict := complete(r)
	if o.check {
		verdict = errors.Join(verdict, r.Missed(targets))
	}
	if o.json { // measure has already written it
		return verdict
	}
	if !o.check { // they are this project's concern
		targets = nil
	}
	err = r.WriteTables(out, targets)
	if earlier != nil {
		fmt.Fprintln(out)
		err = errors.Join(err, report.WriteChanges(out, changes))
	}
	fmt.Fprintf(out, "\nThe report is %s\n\n", filepath.Join(o.dir, markdownFile))
	if !o.check {
		err = errors.Join(err, r.WriteSummary(out))
	}
	return errors.Join(err, verdict)
}

// complete returns an error if something that was to be measured is missing in the report.
func complete(r *report.Report) error {
	if len(r.Failed) > 0 {
		f := r.Failed[0]
		return fmt.Errorf("%d measurements failed, the first that of %s in %s", len(r.Failed), f.Contender, f.Case)
	}
	measured := func(row report.Row) bool { return row.Case != report.LineCase }
	if !slices.ContainsFunc(r.Rows, measured) {
		return errors.New("nothing was measured")
	}
	return nil
}

// cases returns the cases to measure.
func (o options) cases() (chosen []harness.Case, err error) {
	all := harness.Full
	if o.quick {
		all = harness.Quick
	}
	for _, c := range all {
		if o.run.MatchString(c.Name()) {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no case matches %q", o.run)
	}
	return chosen, nil
}

// withTargets returns the cases for which there is a target.
func withTargets(cases []harness.Case, targets []report.Target) ([]harness.Case, error) {
	chosen := slices.DeleteFunc(slices.Clone(cases), func(c harness.Case) bool {
		return !slices.ContainsFunc(targets, func(t report.Target) bool { return t.Load == c })
	})
	if len(chosen) == 0 {
		return nil, errors.New("no chosen case has a target")
	}
	return chosen, nil
}

// named returns the contenders of which targets speak and those with which they are compared, if
// they are available here.
func named(targets []report.Target) (names []string) {
	for _, c := range harness.Contenders {
		reference := slices.Contains([]string{harness.Baseline, harness.UnixSocket, harness.Limit}, c.Name)
		isNamed := slices.ContainsFunc(targets, func(t report.Target) bool { return t.Contender == c.Name })
		if (reference || isNamed) && c.Absent() == nil {
			names = append(names, c.Name)
		}
	}
	return names
}

// A participant is a contender in this run, under a unique name.
type participant struct {
	name string
	harness.Contender
}

// choose returns the named contenders, or all that are available if names is nil.
// A named contender that is not available is an error.
func choose(names []string) (participants []participant, absent []report.Absence, err error) {
	if names == nil {
		for _, c := range harness.Contenders {
			if c.OnRequest {
				continue
			}
			if why := c.Absent(); why != nil {
				absent = append(absent, report.Absence{Contender: c.Name, Why: why.Error()})
				continue
			}
			participants = append(participants, participant{c.Name, c})
		}
		return participants, absent, nil
	}
	times := map[string]int{}
	for _, name := range names {
		c, err := harness.Find(name)
		if err != nil {
			return nil, nil, err
		}
		if why := c.Absent(); why != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, why)
		}
		if times[name]++; times[name] > 1 {
			name += fmt.Sprintf("#%d", times[name])
		}
		participants = append(participants, participant{name, c})
	}
	return participants, nil, nil
}

// measure runs all cases once in each pass.
func (o options) measure(out, progress io.Writer, cases []harness.Case, participants []participant, absent []report.Absence) (*report.Report, error) {
	r := &report.Report{Machine: machine.Describe(), Absent: absent}
	if !o.json {
		out = io.Discard
	}
	writer, err := report.NewWriter(out, r.Machine, absent)
	if err != nil {
		return nil, err
	}
	p := newPlan(o.quick, len(cases), len(participants))
	p.profiles = o.profiles
	p.line = machine.NewLine()
	defer p.line.Close()

	runs := make([]run, len(cases))
	for i, c := range cases {
		runs[i] = run{load: c, participants: slices.DeleteFunc(slices.Clone(participants), func(p participant) bool { return !p.Measures(c.Kind) })}
	}
	bar := newBar(progress, p.passes*len(cases)*p.rounds)
	for pass := range p.passes {
		for i := range runs {
			c := &runs[i]
			bar.Describe(fmt.Sprintf("%-18s", c.load.Name()))
			before := (pass*len(cases) + i) * p.rounds
			if err := p.pass(c, func(rounds int) { bar.Set(before + min(rounds, p.rounds)) }); err != nil {
				return nil, fmt.Errorf("%s: %w", c.load.Name(), err)
			}
			if pass < p.passes-1 {
				continue
			}
			rows, kept := c.rows(p.passes * p.rounds)
			r.Rows = append(r.Rows, rows...)
			r.Failed = append(r.Failed, c.failed...)
			r.Kept = append(r.Kept, kept)
			if err := writer.Case(rows, kept, c.failed); err != nil {
				return nil, err
			}
		}
	}
	bar.Finish()
	lines := report.LineRows(p.lines)
	r.Rows = append(r.Rows, lines...)
	return r, writer.Rows(lines)
}

// newBar returns a progress bar, which is visible only on a terminal.
func newBar(out io.Writer, steps int) *progressbar.ProgressBar {
	return progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(out),
		progressbar.OptionSetVisibility(isTerminal(out)),
		progressbar.OptionSetWidth(40),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(200*time.Millisecond), // drawing takes time too
		progressbar.OptionClearOnFinish(),
	)
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
