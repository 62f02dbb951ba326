package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Log has what the statements "log" of a file say together. The zero value logs nothing.
type Log struct {
	Line        int // of the last statement; 0: there is none
	Destination Destination
	Name        string // of the file, as it was given
	MinLevel    int    // 0: the default, LevelError

	// failed is set when a message could not be written. It is shared by copies.
	failed *atomic.Bool
}

// Destination is where messages go.
type Destination uint8

const (
	Stderr Destination = iota
	Syslog
	File
)

// The levels of messages. The others of libsdp do not occur.
const (
	LevelSummary = 7 // each Dial and Listen, with its result
	LevelError   = 9 // a Dial that fails because a rule asks for SDP
)

// String returns the statement as a file has it.
func (l *Log) String() string {
	where := [...]string{"stderr", "syslog", "file " + l.Name}[l.Destination]
	return fmt.Sprintf("log destination %s min-level %d", where, l.level())
}

func (l *Log) level() int {
	if l.MinLevel == 0 {
		return LevelError
	}
	return l.MinLevel
}

// parse parses the words after log. Later statements add to earlier ones.
func (l *Log) parse(line int, w []string) error {
	for len(w) > 0 {
		option := w[0]
		if option != "destination" && option != "min-level" {
			return fmt.Errorf("%s after log: want destination or min-level", quote(option))
		}
		if len(w) < 2 {
			return fmt.Errorf("missing value after %s", option)
		}
		value := w[1]
		w = w[2:]
		if option == "min-level" {
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > 9 {
				return fmt.Errorf("min-level %s: want 1 to 9", quote(value))
			}
			l.MinLevel = n
			continue
		}
		switch value {
		case "stderr":
			l.Destination = Stderr
		case "syslog":
			l.Destination = Syslog
		case "file":
			if len(w) == 0 {
				return errors.New("missing name after destination file")
			}
			l.Destination, l.Name = File, w[0]
			if strings.Contains(l.Name, "..") {
				return fmt.Errorf("file %s: want a name that does not contain two dots", quote(l.Name))
			}
			w = w[1:]
		default:
			return fmt.Errorf("destination %s: want stderr, syslog or file NAME", quote(value))
		}
	}
	if l.failed == nil {
		l.failed = new(atomic.Bool)
	}
	l.Line = line
	return nil
}

// Enabled reports whether messages of a level are written.
func (l *Log) Enabled(level int) bool { return l.Line != 0 && level >= l.level() }

// Path returns the file that a user's programs write to: root's NAME, or /var/log/NAME, and another
// user's NAME.UID, or NAME.UID in the directory for temporary files.
func (l *Log) Path(uid int) string {
	name := l.Name
	switch {
	case uid <= 0 && filepath.IsAbs(name):
		return name
	case uid == 0:
		return filepath.Join("/var/log", name)
	case uid < 0: // not a Unix
		return filepath.Join(os.TempDir(), name)
	case filepath.IsAbs(name):
		return fmt.Sprintf("%s.%d", name, uid)
	}
	return fmt.Sprintf("%s.%d", filepath.Join("/tmp", name), uid)
}

// Write writes a message of one line. It is safe for concurrent use. If that fails, it says so on
// standard error once.
func (l *Log) Write(level int, program, message string) {
	if !l.Enabled(level) {
		return
	}
	program, message = strings.Map(printable, program), strings.Map(printable, message)
	var err error
	switch l.Destination {
	case Syslog:
		const user, notice, failure = 1 << 3, 5, 3 // RFC 3164
		severity := notice
		if level == LevelError {
			severity = failure
		}
		err = sendSyslog(fmt.Sprintf("<%d>%s[%d]: sdp: %s", user|severity, program, os.Getpid(), message))
	case File:
		err = appendLine(l.Path(os.Geteuid()), stamped(program, message))
	default:
		_, err = os.Stderr.WriteString(stamped(program, message))
	}
	if err != nil && !l.failed.Swap(true) {
		fmt.Fprintf(os.Stderr, "sdp: log message lost: %v\n", err)
	}
}

// printable replaces what would break a line, control a terminal, or show text in another order than
// it has. A message may have text of a peer, and a program's caller chooses its name.
//
// unicode.IsPrint would make each program that sdp go builds larger by its tables.
func printable(r rune) rune {
	switch {
	case r < ' ', r >= 0x7f && r < 0xa0,
		r >= '\u200e' && r <= '\u200f', // marks of direction
		r >= '\u2028' && r <= '\u202e', // separators, embeddings and overrides
		r >= '\u2066' && r <= '\u2069': // isolates
		return '?'
	}
	return r
}

func stamped(program, message string) string {
	return fmt.Sprintf("%s %s[%d] %s\n", time.Now().Format(time.RFC3339), program, os.Getpid(), message)
}

// appendLine appends a line to a file with one write, so that lines of several processes do not mix.
// Other users can write to the directory for temporary files, so the file must be this user's.
func appendLine(name, line string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|nonblocking|noFollow, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := owned(f); err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	_, err = f.WriteString(line)
	return err
}
