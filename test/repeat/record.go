package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// entry is a line of the record: one run.
type entry struct {
	job
	Race    bool    `json:"race,omitempty"`
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`              // seconds of processor time, including children
	Output  string  `json:"output,omitempty"` // after a failure: the file with the output
}

// count sums up the runs of a job.
type count struct {
	runs, failed int
	seconds, cpu float64
}

// key identifies a job and the compiled version of its program.
type key struct{ what, device, build string }

// record is the file of all runs. It is not safe for concurrent use.
type record struct {
	file   *os.File
	counts map[key]count
}

// openRecord reads the existing record, and opens it for appending.
func openRecord(name string) (*record, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	c := &record{file: f, counts: make(map[key]count)}
	all, err := io.ReadAll(f)
	for line := range bytes.Lines(all) {
		var e entry
		if json.Unmarshal(line, &e) == nil {
			c.count(e)
		}
	}
	if err == nil && len(all) > 0 && all[len(all)-1] != '\n' {
		// A process that was killed while it wrote left an incomplete line. That run is
		// repeated.
		_, err = f.WriteString("\n")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return c, nil
}

func (j *job) key() key { return key{j.What, j.Device, j.Build} }

// get returns the count of the job's runs so far.
func (c *record) get(j *job) count { return c.counts[j.key()] }

func (c *record) count(e entry) {
	n := c.counts[e.key()]
	n.runs++
	n.seconds += e.Seconds
	n.cpu += e.CPU
	if !e.OK {
		n.failed++
	}
	c.counts[e.key()] = n
}

// add appends a run to the file.
func (c *record) add(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	c.count(e)
	_, err = c.file.Write(append(line, '\n'))
	return err
}

func (c *record) close() { c.file.Close() }

// row is the summary of a job.
type row struct {
	What     string  `json:"what"`
	Device   string  `json:"device,omitempty"`
	Wanted   int     `json:"wanted"`
	Runs     int     `json:"runs"`
	Failures int     `json:"failures"`
	Seconds  float64 `json:"seconds"` // of all runs
	CPU      float64 `json:"cpu"`     // processor time of all runs, in seconds
}

// summary prints the results as a table and as a line of JSON. It returns an error if there
// were failures, or if the run was interrupted.
func (c *record) summary(out io.Writer, jobs []*job, interrupted bool) error {
	rows := []row{} // not nil, so that no rows are [] in JSON
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "package\tdevice\truns\tfailures\tseconds\teach\tcpu each\t")
	failed := 0
	for _, j := range jobs {
		n := c.get(j)
		failed += n.failed
		rows = append(rows, row{j.What, j.Device, j.times, n.runs, n.failed, n.seconds, n.cpu})
		each := float64(max(1, n.runs))
		fmt.Fprintf(table, "%s\t%s\t%d of %d\t%d\t%.0f\t%.1f\t%.1f\t\n",
			j.What, j.Device, n.runs, j.times, n.failed, n.seconds, n.seconds/each, n.cpu/each)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(rows); err != nil {
		return err
	}
	switch {
	case interrupted:
		return fmt.Errorf("interrupted after %d failures; the same command continues", failed)
	case failed > 0:
		return errFailures
	}
	return nil
}
