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
	name    string // of its directory
	devices bool   // SDP_DEVICES makes a difference
	seldom  string // the tests that have fewer runs, a regular expression; "" none, "." all
	program bool
}

// all is what is repeated, that first which takes longest.
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

// listed is what SDP_DEVICES says to have all on a device. iwarp is what everything
// begins with, and what many tests are about whatever the device is.
func listed(device string) string {
	if device == "iwarp" {
		return device
	}
	return device + ",iwarp"
}

// job is a program with its arguments, to be run so many times.
type job struct {
	What   string `json:"what"`
	Device string `json:"device,omitempty"`
	Build  string `json:"build"` // a hash of the program and its arguments

	times     int
	beside    bool // others may run meanwhile
	directory string
	argv      []string
}

// String is the job's name in what is printed.
func (j *job) String() string { return strings.TrimSuffix(j.What+" "+j.Device, " ") }

// jobs compiles the subjects, and returns what is to be done with them.
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
		return []*job{{What: s.name, times: r.times, beside: true, argv: argv}}
	case ".":
		return []*job{{What: s.name, times: r.few, argv: argv}}
	}
	return []*job{
		{What: s.name, times: r.times, beside: true, argv: with("-test.skip=" + s.seldom)},
		{What: s.name + ", kill and scale", times: r.few, argv: with("-test.run=" + s.seldom)},
	}
}

// compile makes the subject's program, and returns where it is and a hash of it; ""
// if it has no tests.
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
	os.Remove(program) // nothing takes its place if there are no tests any more
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, said)
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
