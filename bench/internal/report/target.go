package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// A Target is a value that a contender must reach in a case, and optionally a
// better one that it aims for.
type Target struct {
	Contender string
	Load      harness.Case
	Metric    string
	Distance  Distance
	AtLeast   bool // otherwise at most
	Must      Bound
	Aim       *Bound // nil if there is none
}

// A Bound is a multiple of a reference.
type Bound struct {
	Value float64
	// Of is "tcp": the baseline; "unix": a Unix socket; "limit": what is possible at all; "line": the cache line's
	// round trip; "abs": the metric's unit; "tcp+": the same, more than the baseline.
	Of string
}

func (b Bound) String() string {
	switch b.Of {
	case absolute:
		return number(b.Value)
	case additional:
		return ofBaseline + " + " + number(b.Value)
	}
	return number(b.Value) + " × " + b.Of
}

const (
	ofBaseline = harness.Baseline
	ofUnix     = harness.UnixSocket
	ofLimit    = harness.Limit
	ofLine     = string(LineCase)
	absolute   = "abs"
	additional = "tcp+"
)

// ReadTargets reads a file of targets. Each line has fields separated by blanks:
// contender, case, metric, distance, <= or >=, the required multiple and its
// reference, and optionally the multiple and the reference of the aim. It ignores
// empty lines and lines that begin with #.
func ReadTargets(in io.Reader) (targets []Target, err error) {
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		target, err := parseTarget(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		targets = append(targets, target)
	}
	return targets, lines.Err()
}

func parseTarget(fields []string) (t Target, err error) {
	if len(fields) != 7 && len(fields) != 9 {
		return t, fmt.Errorf("got %d fields, want 7 or 9", len(fields))
	}
	t = Target{Contender: fields[0], Metric: fields[2], Distance: Distance(fields[3]), AtLeast: fields[4] == ">="}
	if _, err := harness.Find(t.Contender); err != nil {
		return t, err
	}
	named := func(c harness.Case) bool { return c.Name() == fields[1] }
	i := slices.IndexFunc(harness.Full, named)
	if i < 0 {
		return t, fmt.Errorf("unknown case %q", fields[1])
	}
	t.Load = harness.Full[i]
	if !slices.Contains([]Distance{All, Near, Far}, t.Distance) {
		return t, fmt.Errorf("unknown distance %q", t.Distance)
	}
	if fields[4] != ">=" && fields[4] != "<=" {
		return t, fmt.Errorf("unknown comparison %q, want <= or >=", fields[4])
	}
	if t.Must, err = parseBound(fields[5:7]); err != nil || len(fields) == 7 {
		return t, err
	}
	aim, err := parseBound(fields[7:9])
	t.Aim = &aim
	return t, err
}

func parseBound(fields []string) (b Bound, err error) {
	b.Of = fields[1]
	if !slices.Contains([]string{ofBaseline, ofUnix, ofLimit, ofLine, absolute, additional}, b.Of) {
		return b, fmt.Errorf("unknown reference %q", b.Of)
	}
	b.Value, err = strconv.ParseFloat(fields[0], 64)
	return b, err
}

// An Outcome is the result for a target.
type Outcome struct {
	Target
	Failed   bool // the contender failed in the case, and nothing else is known
	Row      Row
	Measured Bound // relative to the same reference as Must
	Met      bool
	AimMet   bool // false without an aim
}

// Judge returns which targets are met. It leaves out targets for which the report
// has no row, unless the contender failed.
func (r *Report) Judge(targets []Target) (outcomes []Outcome) {
	for _, t := range targets {
		if r.failed(t) {
			outcomes = append(outcomes, Outcome{Target: t, Failed: true})
			continue
		}
		row, ok := r.Find(t.Load, t.Contender, t.Distance, t.Metric)
		if !ok {
			continue
		}
		value, ok := r.measured(row, t.Must.Of)
		if !ok {
			continue
		}
		o := Outcome{Target: t, Row: row, Measured: Bound{value, t.Must.Of}, Met: t.meets(value, t.Must)}
		if t.Aim != nil {
			value, ok := r.measured(row, t.Aim.Of)
			o.AimMet = ok && t.meets(value, *t.Aim)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// Missed returns an error that lists the targets that are not met, or nil.
func (r *Report) Missed(targets []Target) error {
	outcomes := r.Judge(targets)
	var missed []error
	for _, o := range outcomes {
		if !o.Met {
			missed = append(missed, fmt.Errorf("%s, %s, %s: %s, must be %s %s",
				o.Load.Name(), o.Contender, o.Target.Metric, o.Value(), o.Direction(), o.Must))
		}
	}
	switch {
	case len(outcomes) == 0:
		return errors.New("no target was measured")
	case len(missed) > 0:
		return fmt.Errorf("%d of %d targets are not met:\n%w", len(missed), len(outcomes), errors.Join(missed...))
	}
	return nil
}

// failed reports whether the target's contender failed in its case.
func (r *Report) failed(t Target) bool {
	return slices.ContainsFunc(r.Failed, func(f Failure) bool {
		return f.Contender == t.Contender && f.Case == t.Load.Name()
	})
}

func (t Target) meets(value float64, bound Bound) bool {
	if t.AtLeast {
		return value >= bound.Value
	}
	return value <= bound.Value
}

// measured returns the row's value relative to the reference.
func (r *Report) measured(row Row, of string) (float64, bool) {
	switch of {
	case ofBaseline, ofUnix, ofLimit:
		ratio := map[string]*float64{ofBaseline: row.Ratio, ofUnix: row.Unix, ofLimit: row.Limit}[of]
		if ratio == nil {
			return 0, false
		}
		return *ratio, true
	case ofLine:
		line, ok := r.Find(harness.Case{Kind: LineCase}, LineContender, row.Distance, harness.P50)
		return row.Median / line.Median, ok
	case additional:
		baseline, ok := r.Find(row.Load(), harness.Baseline, row.Distance, row.Metric)
		return row.Median - baseline.Median, ok
	}
	return row.Median, true
}

// Direction returns the comparison sign of the target.
func (t Target) Direction() string {
	if t.AtLeast {
		return "≥"
	}
	return "≤"
}

// Value formats what was measured.
func (o Outcome) Value() string {
	if o.Failed {
		return "–"
	}
	return o.Measured.String()
}

// Verdict describes the outcome.
func (o Outcome) Verdict() string {
	switch {
	case o.Failed:
		return "failed"
	case !o.Met:
		return "not met"
	case o.AimMet:
		return "met, and the aim"
	default:
		return "met"
	}
}
