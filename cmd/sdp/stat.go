package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gosdp/gosdp/internal/status"
	"github.com/gosdp/gosdp/internal/status/collect"
	"github.com/gosdp/gosdp/internal/term"
)

func statCommand() *command {
	c := &command{
		name:  "stat",
		usage: "[flags]",
		short: "list the connections of this user's programs that use the library",
		long:  statHelp,
	}
	return withFlags(c, func(f *statFlags, rest []string) error {
		switch {
		case len(rest) > 0:
			return misuse(c.name, "unexpected argument %q", rest[0])
		case f.interval < 0:
			return misuse(c.name, "-interval %v: must not be negative", f.interval)
		}
		return f.run()
	})
}

const statHelp = `
Stat lists the connections of package sdp of all programs of this user, and of all users if
root asks: those that can move between TCP and shared memory, and those over RDMA. A program
shows them if SDP_STATUS=1 is in its environment or if it calls sdp.ServeStatus. It
then has a socket in a directory that only its user can enter, /run/user/UID/sdp-status-UID or
/tmp/sdp-status-UID. If SDP_STATUS is the path of a directory the socket is there; call stat
with the same setting, or with -dir.

The columns are

	PROGRAM    the program and its process
	DEVICE     what carries the bytes now, such as tcp, shm or verbs
	LOCAL, REMOTE, AGE
	SENT, RECEIVED    bytes so far, and OUT and IN bytes a second
	UNREAD     bytes that have arrived and that the program has not read. If it is large,
	           the program reads slowly
	MOVES      how often what this end sends has moved to shared memory
	CREDIT     RDMA: messages that this end may send, and that the peer may
	STALLS     RDMA: how often a Write waited for the peer to have room
	ZCOPY      RDMA: the part of the bytes that was not copied
	NOTE       why the connection is on TCP; or why other RDMA devices are not used

Below the table, programs are named that have had connections of package net, with how many and
why: off, rule, no_device, other_host, plain_peer, setup_failed or other, as "sdp check" has them.
A program that does not answer within 0.2 s is left out, and named at the end.`

// source selects the programs to ask.
type source struct{ dir string }

func (s *source) define(fs *flag.FlagSet) {
	fs.StringVar(&s.dir, "dir", "", "ask the programs whose sockets are in this `directory`")
}

// usable returns an error if -dir names something in which no program's socket is looked for.
func (s *source) usable() error {
	if s.dir == "" {
		return nil
	}
	return collect.Usable(s.dir)
}

func (s *source) collect() ([]status.Program, []collect.Failure) {
	dirs, more := s.dirs()
	programs, failures := collect.Collect(dirs)
	return programs, append(failures, more...)
}

// dirs returns the directories with sockets, and why there may be more.
func (s *source) dirs() ([]string, []collect.Failure) {
	if one := s.directory(); one != "" {
		return []string{one}, nil
	}
	return collect.Dirs()
}

// directory returns the directory with sockets, or "" for those of all users.
func (s *source) directory() string {
	switch setting := os.Getenv("SDP_STATUS"); {
	case s.dir != "":
		return s.dir
	case os.Geteuid() == 0 && !strings.HasPrefix(setting, "/"):
		return ""
	default:
		return status.Dir(setting, os.Geteuid())
	}
}

// place names what was looked at.
func (s *source) place() string {
	return cmp.Or(s.directory(), "any user's directory below /run/user or /tmp")
}

// rateTime is over what time rates are measured if nothing else is asked for.
var rateTime = 200 * time.Millisecond

type statFlags struct {
	source
	json     bool
	filter   string
	interval time.Duration
}

func (f *statFlags) define(fs *flag.FlagSet) {
	f.source.define(fs)
	fs.BoolVar(&f.json, "json", false, "print what the programs say as JSON")
	fs.StringVar(&f.filter, "filter", "", "list connections only if this `text` is in a column")
	fs.DurationVar(&f.interval, "interval", rateTime, "measure the rates over this `time`; 0: no rates")
}

func (f *statFlags) run() error {
	if err := f.usable(); err != nil {
		return err
	}
	programs, failures := f.collect()
	if f.json {
		if programs == nil {
			programs = []status.Program{}
		}
		printFailures(os.Stderr, failures)
		printJSON(filtered(programs, f.filter))
		return nil
	}
	var rates rates
	rates.next(programs)
	if f.interval > 0 && len(programs) > 0 {
		time.Sleep(f.interval)
		programs, failures = f.collect()
	}
	lines := rates.next(programs)
	lines = slices.DeleteFunc(lines, func(l line) bool { return !l.has(f.filter) })
	slices.SortFunc(lines, compareBy("program"))
	fmt.Fprint(stdout, tableOf(lines))
	if f.filter == "" {
		for _, p := range programs {
			if text := outsideTable(&p); text != "" {
				fmt.Fprintln(stdout, text)
			}
		}
	}
	printFailures(os.Stderr, failures)
	if len(programs)+len(failures) == 0 {
		fmt.Fprintf(os.Stderr, "sdp: no program serves its status in %s; set SDP_STATUS=1 in a program's environment\n",
			term.Clean(f.place()))
	}
	return nil
}

// filtered leaves out connections that do not contain text in a column, and programs without others.
func filtered(programs []status.Program, text string) []status.Program {
	if text == "" {
		return programs
	}
	left := []status.Program{}
	for _, p := range programs {
		p.Conns = slices.DeleteFunc(p.Conns, func(c status.Conn) bool {
			l := line{program: p.Name, pid: p.PID, Conn: c}
			return !l.has(text)
		})
		if len(p.Conns) > 0 {
			left = append(left, p)
		}
	}
	return left
}

// outsideTable says what the table does not show of a program: connections of package net, or that there are none.
func outsideTable(p *status.Program) string {
	counts := plainCounts("dialled", p.PlainDials) + plainCounts("accepted", p.PlainAccepts)
	switch {
	case counts != "":
		return fmt.Sprintf("%s/%d: plain TCP so far:%s", term.Clean(p.Name), p.PID, counts)
	case p.Opened == 0:
		return fmt.Sprintf("%s/%d: no connection so far", term.Clean(p.Name), p.PID)
	}
	return ""
}

// plainCounts returns " 3 dialled (off 1, other_host 2)", or "" for none.
func plainCounts(role string, counts map[string]uint64) string {
	all, reasons := uint64(0), []string{}
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		all += counts[why]
		reasons = append(reasons, fmt.Sprintf("%s %d", term.Clean(why), counts[why]))
	}
	if all == 0 {
		return ""
	}
	return fmt.Sprintf(" %d %s (%s)", all, role, strings.Join(reasons, ", "))
}

func printFailures(w io.Writer, failures []collect.Failure) {
	for _, f := range failures {
		fmt.Fprintf(w, "sdp: skipped: %s\n", term.Clean(f.Error()))
	}
}

// A line is a connection with its program and its rates.
type line struct {
	program string
	pid     int
	now     time.Time
	status.Conn
	out, in float64 // bytes a second,
	rated   bool    // if they are known
}

// rates computes rates from the counters of the previous listing. The zero value is ready to use.
type rates struct {
	before map[connKey]sample
}

type connKey struct {
	pid int
	id  uint64
}

type sample struct {
	at             time.Time
	sent, received uint64
}

// next returns a line for each connection, with the rates since the last call.
func (r *rates) next(programs []status.Program) []line {
	now := make(map[connKey]sample)
	var lines []line
	for _, p := range programs {
		for _, c := range p.Conns {
			key := connKey{p.PID, c.ID}
			l := line{program: p.Name, pid: p.PID, now: p.Time, Conn: c}
			if b, ok := r.before[key]; ok && p.Time.After(b.at) && c.Sent >= b.sent && c.Received >= b.received {
				seconds := p.Time.Sub(b.at).Seconds()
				l.out, l.in = float64(c.Sent-b.sent)/seconds, float64(c.Received-b.received)/seconds
				l.rated = true
			}
			now[key] = sample{p.Time, c.Sent, c.Received}
			lines = append(lines, l)
		}
	}
	r.before = now
	return lines
}

// has reports whether one of the columns with names contains text.
func (l *line) has(text string) bool {
	for _, column := range []string{l.name(), l.Device, l.Local, l.Remote, l.note()} {
		if strings.Contains(column, text) {
			return true
		}
	}
	return false
}

func (l *line) name() string { return fmt.Sprintf("%s/%d", l.program, l.pid) }

// note returns why the connection is on TCP, and why other devices are not used.
func (l *line) note() string {
	var notes []string
	if l.Closing {
		notes = append(notes, "closing")
	}
	if l.OnTCP != "" {
		notes = append(notes, l.OnTCP)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Declined)) {
		notes = append(notes, name+": "+l.Declined[name])
	}
	return strings.Join(notes, "; ")
}

// ofSDP returns the columns of what only SDP's messages have: credit, stalls and zero copy.
func (l *line) ofSDP() (credit, stalls, zcopy string) {
	if l.Mode != "bcopy" && l.Mode != "zcopy" {
		return "-", "-", "-"
	}
	part := 0.0
	if all := l.Sent + l.Received; all > 0 {
		part = float64(l.ZCopySent+l.ZCopyRecv) / float64(all)
	}
	return fmt.Sprintf("%d/%d", l.SendCredit, l.RecvCredit), fmt.Sprint(l.Stalls), fmt.Sprintf("%.0f%%", 100*part)
}

func tableOf(lines []line) *term.Table {
	t := term.NewTable("PROGRAM", "DEVICE", "LOCAL", "REMOTE", ">AGE", ">OUT", ">IN", ">SENT", ">RECEIVED",
		">UNREAD", ">MOVES", ">CREDIT", ">STALLS", ">ZCOPY", "NOTE")
	for i := range lines {
		l := &lines[i]
		out, in := "-", "-"
		if l.rated {
			out, in = term.Rate(l.out), term.Rate(l.in)
		}
		credit, stalls, zcopy := l.ofSDP()
		t.Row(l.name(), l.Device, l.Local, l.Remote, term.Age(l.now.Sub(l.Opened)),
			out, in, term.Bytes(float64(l.Sent)), term.Bytes(float64(l.Received)),
			term.Bytes(float64(l.Unread)), fmt.Sprint(l.Moves), credit, stalls, zcopy, l.note())
	}
	return t
}
