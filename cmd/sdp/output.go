package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// stdout is where commands print. A command whose output is lost must not report success.
var stdout = &output{to: os.Stdout}

// An output keeps the first error of a file. It is safe for concurrent use.
type output struct {
	to *os.File

	mu  sync.Mutex
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// failed returns the first error.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// printJSON prints a value for programs to read. It is safe to print on a terminal, even if the
// value has text from another program.
func printJSON(v any) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.Encode(v)
	stdout.Write(escape(text.Bytes())) // run reports what stdout meets
}

// escape escapes the characters of a JSON text that do not print, which can only be in strings. The
// encoder escapes no others than those below U+0020 and a few more.
func escape(text []byte) []byte {
	escaped := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			escaped = utf8.AppendRune(escaped, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			escaped = fmt.Appendf(escaped, `\u%04x\u%04x`, high, low)
		default:
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		}
	}
	return escaped
}
