package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/gosdp/gosdp/bench/internal/harness"
	"github.com/gosdp/gosdp/bench/internal/machine"
)

// A Report is the complete result of a run. As JSON it has one object per line: a
// [Row] or one of the other types, which have no field "metric".
type Report struct {
	Machine machine.Description
	Absent  []Absence
	Failed  []Failure
	Kept    []CaseKept
	Rows    []Row
}

// An Absence is a contender that could not be measured here.
type Absence struct {
	Contender string `json:"absent"`
	Why       string `json:"why"`
}

// A Failure is a contender that failed in a case.
type Failure struct {
	Contender string `json:"failed"`
	Case      string `json:"in"`
	Why       string `json:"why"`
}

// CaseKept says which rounds of a case were kept.
type CaseKept struct {
	Case string `json:"rounds_of"`
	Kept
}

// header is the first line of a JSON report.
type header struct {
	Machine machine.Description `json:"machine"`
}

// A Writer writes a report as JSON during the run.
type Writer struct{ encoder *json.Encoder }

// NewWriter begins a report with the machine and the contenders it does not support.
func NewWriter(out io.Writer, m machine.Description, absent []Absence) (*Writer, error) {
	w := &Writer{json.NewEncoder(out)}
	err := w.encoder.Encode(header{m})
	for _, a := range absent {
		err = errors.Join(err, w.encoder.Encode(a))
	}
	return w, err
}

// Case writes the results of a case.
func (w *Writer) Case(rows []Row, kept CaseKept, failed []Failure) error {
	err := w.Rows(rows)
	for _, f := range failed {
		err = errors.Join(err, w.encoder.Encode(f))
	}
	return errors.Join(err, w.encoder.Encode(kept))
}

// Rows writes rows.
func (w *Writer) Rows(rows []Row) (err error) {
	for _, r := range rows {
		err = errors.Join(err, w.encoder.Encode(r))
	}
	return err
}

// Read reads the output of a Writer.
func Read(in io.Reader) (*Report, error) {
	var r Report
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if err := r.readLine(lines.Bytes()); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(r.Rows) == 0 {
		return nil, errors.New("no rows")
	}
	return &r, nil
}

// readLine decides by a line's fields which object it holds.
func (r *Report) readLine(line []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return err
	}
	has := func(name string) bool { return fields[name] != nil }
	switch {
	case has("metric"):
		return readInto(&r.Rows, line)
	case has("absent"):
		return readInto(&r.Absent, line)
	case has("failed"):
		return readInto(&r.Failed, line)
	case has("rounds_of"):
		return readInto(&r.Kept, line)
	case has("machine"):
		var h header
		err := json.Unmarshal(line, &h)
		r.Machine = h.Machine
		return err
	}
	return errors.New("unknown kind of report line")
}

func readInto[T any](all *[]T, line []byte) error {
	var one T
	if err := json.Unmarshal(line, &one); err != nil {
		return err
	}
	*all = append(*all, one)
	return nil
}

// Find returns the row with the given case, contender, distance and metric.
func (r *Report) Find(load harness.Case, contender string, distance Distance, metric string) (Row, bool) {
	for _, row := range r.Rows {
		if row.Load() == load && row.Contender == contender && row.Distance == distance && row.Metric == metric {
			return row, true
		}
	}
	return Row{}, false
}

// WriteJSON writes the whole report.
func (r *Report) WriteJSON(out io.Writer) error {
	w, err := NewWriter(out, r.Machine, r.Absent)
	if err != nil {
		return err
	}
	if err := w.Rows(r.Rows); err != nil {
		return err
	}
	for _, f := range r.Failed {
		err = errors.Join(err, w.encoder.Encode(f))
	}
	for _, k := range r.Kept {
		err = errors.Join(err, w.encoder.Encode(k))
	}
	return err
}
