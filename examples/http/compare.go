package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gosdp/gosdp/examples/internal/devices"
	"github.com/gosdp/gosdp/examples/internal/process"
)

// shownMismatches is the number of mismatches per stack that are printed.
const shownMismatches = 10

// compare fetches dir over each stack and prints the results. It returns an error
// if any byte differs, or if SDP used anything but RDMA devices.
func compare(host, dir string, conns int, out io.Writer) error {
	if conns < 1 {
		return errors.New("-conns must be at least 1")
	}
	if dir == "" {
		source, err := goSource()
		if err != nil {
			return err
		}
		dir = source
	}
	files, err := readTree(dir)
	if err != nil {
		return err
	}

	// This process's heap grows during the first pass, whichever stack that uses, so
	// the time of that pass is not shown.
	if _, err := run("tcp", host, dir, files, conns); err != nil {
		return err
	}

	fmt.Fprintf(out, "every file of %s, from another process:\n\n", dir)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "stack\tdevice\tconnections\tfiles\tbytes\tseconds\tMB/s\tmismatches\t")
	var wrong []error
	for _, name := range []string{"sdp", "tcp"} {
		r, err := run(name, host, dir, files, conns)
		if err != nil {
			return err
		}
		seconds := r.elapsed.Seconds()
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%.2f\t%.0f\t%d\t\n", name, strings.Join(r.devices, ","), r.conns,
			len(files), r.bytes, seconds, float64(r.bytes)/1e6/seconds, len(r.mismatches))
		wrong = append(wrong, verdict(name, r))
	}
	return errors.Join(append(wrong, table.Flush())...)
}

// run starts a process that serves dir at host over the named stack, and fetches
// dir from it.
func run(name, host, dir string, files []file, conns int) (result, error) {
	address, stop, err := process.Start(nil, "-serve", name, "-host", host, "-dir", dir)
	if err != nil {
		return result{}, err
	}
	r := fetch(stacks[name], address, files, conns)
	return r, stop()
}

// verdict returns what is wrong with a stack's result, or nil.
func verdict(name string, r result) error {
	var wrong []error
	if name == "sdp" && slices.Contains(r.devices, devices.Plain) {
		wrong = append(wrong, errors.New("sdp fell back to plain TCP; is SDP_DEVICES set?"))
	}
	if n := len(r.mismatches); n > 0 {
		wrong = append(wrong, fmt.Errorf("%s: %d files differ, among them", name, n))
		wrong = append(wrong, r.mismatches[:min(n, shownMismatches)]...)
	}
	return errors.Join(wrong...)
}
