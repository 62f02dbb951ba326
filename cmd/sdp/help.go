package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// A page is what the help says of a command in addition to its text and its flags.
type page struct {
	status   []string // the exit statuses, each with its meaning
	examples string   // commands, each with a comment
}

// statuses begins a list of exit statuses with those that most commands have.
func statuses(success string, more ...string) []string {
	return append([]string{"0  " + success, "1  it failed; standard error says why", "2  the command was called wrongly"}, more...)
}

var goStatuses = []string{"0  the go command succeeded", "1  it failed, or could not be started", "other  the go command's own"}

// pages has a page for each command.
var pages = map[string]page{
	"go": {goStatuses, `
sdp go build -o server ./cmd/server       # a server whose package net uses SDP
sdp go -verbs test ./...                  # tests, with the device for RDMA hardware`},
	"build":   {goStatuses, "\nsdp build ./cmd/server"},
	"test":    {goStatuses, "\nsdp test -race ./..."},
	"run":     {goStatuses, "\nsdp run ./cmd/server -port 80           # -port is a flag of the server"},
	"install": {goStatuses, "\nsdp install example.com/server@latest"},
	"env": {statuses("the lines were printed"), `
eval "$(sdp env)" && make                 # a Makefile that calls the go command`},
	"version": {[]string{"0  each file is a program with SDP", "1  a file is none, or cannot be read", "2  the command was called wrongly"}, `
sdp version                               # of this tool
sdp version /usr/local/bin/server         # whether that program has SDP`},
	"check": {[]string{
		"0  connections move to shared memory or use RDMA; without an address: a device is used by default", "1  they do not",
		"2  the command was called wrongly", "3  there is no connection to the address",
	}, `
sdp check                                 # what this machine has
sdp check db.example:5432                 # the way to a server
sdp check -v db.example:5432              # and the details
sdp check -json db:5432 | jq -r .path.code
sudo -u web sdp check -program server db:5432   # as another user, under the rules for its program`},
	"check-rules": {[]string{"0  the file is right", "1  it has mistakes, or cannot be read", "2  the command was called wrongly"}, `
sdp check-rules /etc/sdp.conf             # what each line means
sdp check-rules -connect /etc/sdp.conf nats-server 10.0.0.1:4222`},
	"stat": {statuses("the connections were listed, even if programs were left out"), `
sdp stat -filter :5432                    # connections with :5432 in an address
sdp stat -json | jq '.[].connections[] | select(.unread > 0)'
SDP_STATUS=/run/app sdp stat              # programs with the same setting
sdp stat -dir /run/app                    # the same`},
	"top": {statuses("it was ended, or -n tables were printed"), `
sdp top -sort unread                      # programs that read slowly come first
sdp top -n 10 -interval 5s > log          # ten tables, without a terminal`},
	"dump": {[]string{
		"0  the file is complete",
		"1  there is no dump, or it ended early: it could not be written, or was cut short by the program or its end", "2  the command was called wrongly",
	}, `
sdp dump 1234                             # writes sdp-1234.pcapng until Ctrl-C, or 64 MB
sdp dump -conn :5432 -for 30s -w db.pcapng 1234
sdp dump -w - 1234 | tshark -r - -Y http`},
	"ping": {statuses("some way was measured"), `
sdp ping machine-a                        # where sdp perf -s runs
sdp ping -interval 10ms -n 500 -ways shm,tcp localhost
sdp ping -json machine-a:7575`},
	"perf": {statuses("some way was measured; with -s: it was ended by a signal"), `
sdp perf -s                               # on one machine
sdp perf machine-a                        # on the other
sdp perf -s -listen 127.0.0.1:7575        # for clients on the same machine
sdp perf -ways shm,tcp -block 64K -time 3s localhost`},
	"proxy": {statuses("it was ended by a signal; with -check: the configuration is right"), `
sdp proxy -listen tcp://127.0.0.1:5432 -dial sdp://db.example:7000
sdp proxy -check -config /etc/sdp-proxy.conf
sdp proxy -config /etc/sdp-proxy.conf -http :9100
sdp proxy -listen tcp://[::]:15001 -dial auto://original -mark 0x5d9`},
	"completion": {statuses("the script was printed"), `
source <(sdp completion bash)             # now, or in ~/.bashrc`},
}

// lookup returns a command, or nil.
func lookup(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}

// help prints the help of the command that args name, or the list of commands. It returns the exit
// status.
func help(args []string, out, errs io.Writer) int {
	if len(args) == 0 || args[0] == "help" {
		printUsage(out)
		return 0
	}
	c := lookup(args[0])
	if c == nil {
		fmt.Fprintf(errs, "sdp: unknown command %q. \"sdp help\" lists the commands.\n", args[0])
		return 2
	}
	fmt.Fprintf(out, "usage: sdp %s %s\n\n%s\n", c.name, c.usage, strings.TrimSpace(c.long))
	if c.flags != nil {
		fmt.Fprint(out, strings.TrimPrefix(flagHelp(c.flags), "\n"))
	}
	p := pages[c.name]
	fmt.Fprint(out, "\nThe exit status is\n\n")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range p.status {
		status, meaning, _ := strings.Cut(line, "  ")
		fmt.Fprintf(t, "\t%s\t%s\n", status, meaning)
	}
	t.Flush()
	fmt.Fprintf(out, "\nExamples:\n%s\n", strings.ReplaceAll(p.examples, "\n", "\n\t"))
	return 0
}

func printUsage(w io.Writer) {
	fmt.Fprint(w, "Sdp is the tool of the Sockets Direct Protocol for Go.\n\nusage: sdp <command> [arguments]\n\nThe commands are:\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, c := range commands() {
		fmt.Fprintf(t, "\t%s\t%s\n", c.name, c.short)
	}
	t.Flush()
	fmt.Fprint(w, "\n\"sdp help <command>\" describes a command, with its flags, its exit status and examples.\n")
}

// flagHelp returns the part of a command's help that describes its flags.
func flagHelp(define func(*flag.FlagSet)) string {
	var text strings.Builder
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(&text)
	define(fs)
	fs.PrintDefaults()
	times := ""
	fs.VisitAll(func(f *flag.Flag) {
		if name, _ := flag.UnquoteUsage(f); name == "time" {
			times = "\nA time is a number with a unit, such as 300ms, 1.5s or 2m.\n"
		}
	})
	return "\n\nThe flags are:\n\n" + text.String() + times
}
