package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/gosdp/gosdp/internal/status"
	"github.com/gosdp/gosdp/internal/status/collect"
	"github.com/gosdp/gosdp/internal/term"
)

func topCommand() *command {
	c := &command{
		name:  "top",
		usage: "[flags]",
		short: "show the busiest of these connections, again and again",
		long:  topHelp,
	}
	return withFlags(c, func(f *topFlags, rest []string) error {
		switch {
		case len(rest) > 0:
			return misuse(c.name, "unexpected argument %q", rest[0])
		case !slices.Contains(orders, f.sort):
			return misuse(c.name, "-sort %s: want one of %s", f.sort, strings.Join(orders, ", "))
		case f.count < 0:
			return misuse(c.name, "-n %d: must not be negative", f.count)
		case f.interval < 50*time.Millisecond:
			return misuse(c.name, "-interval %v: want at least 50ms", f.interval)
		}
		return f.run()
	})
}

const topHelp = `
Top shows what "sdp stat" lists, again and again, the busiest connection first. See "sdp help
stat" for the columns and for which programs are shown.

While it runs on a terminal these keys work:

	s    sort by the next column: rate, sent, received, unread, moves, stalls, age, program
	/    show only connections that contain a text: type it and press enter
	p    pause
	q    quit

If the output is not a terminal, or with -n, it prints one table after the other.`

type topFlags struct {
	source
	interval time.Duration
	count    int
	sort     string
	filter   string
}

func (f *topFlags) define(fs *flag.FlagSet) {
	f.source.define(fs)
	fs.DurationVar(&f.interval, "interval", time.Second, "the `time` between two tables")
	fs.IntVar(&f.count, "n", 0, "print this `number` of tables and end; 0: until Ctrl-C")
	fs.StringVar(&f.sort, "sort", orders[0], "sort by this `column`: "+strings.Join(orders, ", "))
	fs.StringVar(&f.filter, "filter", "", "show connections only if this `text` is in a column")
}

// orders are the columns by which lines can be sorted.
var orders = []string{"rate", "sent", "received", "unread", "moves", "stalls", "age", "program"}

// compareBy returns the comparison for one of orders: the largest first, except programs.
func compareBy(order string) func(a, b line) int {
	byProgram := func(a, b line) int {
		return cmp.Or(strings.Compare(a.program, b.program), cmp.Compare(a.pid, b.pid), cmp.Compare(a.ID, b.ID))
	}
	var of func(l line) float64
	switch order {
	case "rate":
		of = func(l line) float64 { return l.out + l.in }
	case "sent":
		of = func(l line) float64 { return float64(l.Sent) }
	case "received":
		of = func(l line) float64 { return float64(l.Received) }
	case "unread":
		of = func(l line) float64 { return float64(l.Unread) }
	case "moves":
		of = func(l line) float64 { return float64(l.Moves) }
	case "stalls":
		of = func(l line) float64 { return float64(l.Stalls) }
	case "age":
		of = func(l line) float64 { return -float64(l.Opened.UnixNano()) }
	default:
		return byProgram
	}
	return func(a, b line) int { return cmp.Or(cmp.Compare(of(b), of(a)), byProgram(a, b)) }
}

// A screen is the state of the display, including the settings that keys change.
type screen struct {
	rates  rates
	sort   string
	filter string
	typing bool // a filter
	typed  string
	paused bool
	lines  []line

	programs []status.Program
	failures []collect.Failure
}

func (f *topFlags) run() error {
	if err := f.usable(); err != nil {
		return err
	}
	s := &screen{sort: f.sort, filter: f.filter}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(ended)
	if f.count > 0 || !term.IsTerminal(os.Stdout) {
		s.look(f.collect()) // the rates of the first table are those since then
		pause := min(f.interval, rateTime)
		for n := 0; (f.count == 0 || n < f.count) && stdout.failed() == nil; n++ {
			select {
			case <-time.After(pause):
			case <-ended:
				return nil
			}
			s.look(f.collect())
			fmt.Fprintln(stdout, strings.Join(s.draw(0, 0), "\n"))
			pause = f.interval
		}
		return nil
	}
	keys := make(chan byte)
	if restore, err := term.Keys(os.Stdin); err == nil {
		defer restore()
		go func() {
			var b [1]byte
			for {
				if n, err := os.Stdin.Read(b[:]); n == 0 || err != nil {
					return
				}
				keys <- b[0]
			}
		}()
	}
	term.Enter(os.Stdout)
	defer term.Leave(os.Stdout)
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	s.look(f.collect())
	for {
		term.Draw(os.Stdout, s.draw(term.Size(os.Stdout)))
		select {
		case <-tick.C:
			if !s.paused {
				s.look(f.collect())
			}
		case k := <-keys:
			if !s.key(k) {
				return nil
			}
		case <-ended:
			return nil
		}
	}
}

// look takes the present state of the programs.
func (s *screen) look(programs []status.Program, failures []collect.Failure) {
	s.programs, s.failures = programs, failures
	s.lines = s.rates.next(programs)
}

// key handles a key. It returns false if the key ends the program.
func (s *screen) key(k byte) bool {
	switch {
	case s.typing && (k == '\r' || k == '\n'):
		s.typing, s.filter = false, s.typed
	case s.typing && k == 0x1b:
		s.typing = false
	case s.typing && (k == 0x7f || k == 8):
		_, last := utf8.DecodeLastRuneInString(s.typed)
		s.typed = s.typed[:len(s.typed)-last]
	case s.typing:
		s.typed += string([]byte{k})
	case k == 'q':
		return false
	case k == 's':
		s.sort = orders[(slices.Index(orders, s.sort)+1)%len(orders)]
	case k == 'p':
		s.paused = !s.paused
	case k == '/':
		s.typing, s.typed = true, ""
	}
	return true
}

// draw returns the screen's lines, for a terminal of that size; 0: any.
func (s *screen) draw(columns, rows int) []string {
	shown := slices.DeleteFunc(slices.Clone(s.lines), func(l line) bool { return !l.has(s.filter) })
	slices.SortFunc(shown, compareBy(s.sort))
	var out, in float64
	for _, l := range shown {
		out += l.out
		in += l.in
	}
	head := fmt.Sprintf("%d programs, %d connections, out %s, in %s   sorted by %s", len(s.programs), len(shown),
		term.Rate(out), term.Rate(in), s.sort)
	if s.filter != "" {
		head += "   filter " + term.Clean(s.filter)
	}
	if s.paused {
		head += "   paused"
	}
	if s.typing {
		head = "filter: " + term.Clean(s.typed) + "_"
	}
	lines := []string{term.Cut(head, columns), ""}
	var tail []string
	if len(s.failures) > 0 {
		tail = append(tail, term.Cut(fmt.Sprintf("%d programs skipped: %s", len(s.failures), term.Clean(s.failures[0].Error())), columns))
	}
	if rows > 0 {
		shown = shown[:max(0, min(len(shown), rows-len(lines)-len(tail)-1))]
	}
	return slices.Concat(lines, tableOf(shown).Lines(columns), tail)
}
