package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// subject is a package whose tests are repeated, or a program.
type subject struct {
	name    string // of its directory, relative to the root
	devices bool   // the result depends on SDP_DEVICES
	seldom  string // a regular expression for tests with fewer runs; "" means none, "." all
	program bool
}

// all lists the subjects, the slowest first.
var all = []subject{
	{name: "sdp", devices: true, seldom: "^(TestPeerIsKilled|TestThousandConnections|TestThousandsOfIdleConnections)$"},
	{name: "rdma/shm"},
	{name: "rdma/iwarp"},
	{name: "rdma/rdmatest"},
	{name: "listener"},
	{name: "credits"},
	{name: "zcopy"},
	{name: "bcopy"},
	{name: "wire"},
	{name: "rdma"},
	{name: "rdma/verbs"},
	{name: "test/faults", seldom: "."},
	{name: "test/scale", seldom: "."},
	{name: "test/soak", devices: true, seldom: ".", program: true},
}

// listed returns the value of SDP_DEVICES that selects a device. It includes iwarp, with
// which every connection begins, and which many tests use on any device.
func listed(device string) string {
	if device == "iwarp" {
		return device
	}
	return device + ",iwarp"
}

// job is a program with arguments that is run a number of times.
type job struct {
	What   string `json:"what"`
	Device string `json:"device,omitempty"`
	Build  string `json:"build"` // a hash of the program and its arguments

	times     int
	parallel  bool // may run at the same time as other jobs
	directory string
	argv      []string
}

// String returns the job's name in the output.
func (j *job) String() string { return strings.TrimSuffix(j.What+" "+j.Device, " ") }

// jobs compiles the chosen subjects and returns their jobs.
func (r *repeat) jobs(ctx context.Context, chosen *regexp.Regexp) (list []*job, err error) {
	for _, s := range r.subjects {
		if !chosen.MatchString(s.name) {
			continue
		}
		program, build, err := r.compile(ctx, s)
		if err != nil {
			return nil, err
		}
		if program == "" {
			fmt.Fprintln(r.out, s.name, "has no tests")
			continue
		}
		devices := []string{""}
		if s.devices {
			devices = r.devices
		}
		for _, device := range devices {
			for _, j := range r.jobsOf(s, program, device) {
				j.Device, j.directory = device, filepath.Join(r.root, s.name)
				sum := sha256.Sum256([]byte(build + strings.Join(j.argv[1:], " ")))
				j.Build = hex.EncodeToString(sum[:6])
				list = append(list, j)
			}
		}
	}
	return list, nil
}

// jobsOf returns the one or two jobs of a subject on a device.
func (r *repeat) jobsOf(s subject, program, device string) []*job {
	if s.program {
		return []*job{{What: s.name, times: r.few, argv: []string{program, "-duration", r.soak.String(), "-devices", device}}}
	}
	argv := []string{program, fmt.Sprint("-test.timeout=", r.timeout)}
	if r.short {
		argv = append(argv, "-test.short")
	}
	with := func(more string) []string { return append(argv[:len(argv):len(argv)], more) }
	switch s.seldom {
	case "":
		return []*job{{What: s.name, times: r.times, parallel: true, argv: argv}}
	case ".":
		return []*job{{What: s.name, times: r.few, argv: argv}}
	}
	return []*job{
		{What: s.name, times: r.times, parallel: true, argv: with("-test.skip=" + s.seldom)},
		{What: s.name + ", kill and scale", times: r.few, argv: with("-test.run=" + s.seldom)},
	}
}

// compile compiles the subject's program and returns its path and a hash. The path is empty
// if the subject has no tests.
func (r *repeat) compile(ctx context.Context, s subject) (program, build string, err error) {
	program = filepath.Join(r.dir, "programs", strings.ReplaceAll(s.name, "/", "-"))
	argv := []string{"go", "test", "-c"}
	if s.program {
		argv = []string{"go", "build", "-buildvcs=false"}
	}
	if r.race {
		argv = append(argv, "-race")
		program += "-race"
	}
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], "-o", program, "./"+s.name)...)
	cmd.Dir = r.root
	os.Remove(program) // go test -c writes none if there are no tests
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, output)
	}
	f, err := os.Open(program)
	if os.IsNotExist(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", "", err
	}
	return program, hex.EncodeToString(sum.Sum(nil)), nil
}
