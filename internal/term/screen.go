package term

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	_, _, ok := size(f)
	return ok
}

// Size returns the size of a terminal, and 80 by 24 characters if f is none.
func Size(f *os.File) (columns, rows int) {
	columns, rows, ok := size(f)
	if !ok || columns == 0 || rows == 0 {
		return 80, 24
	}
	return columns, rows
}

// Enter has the terminal show a screen that Leave takes away again.
func Enter(w io.Writer) { io.WriteString(w, "\x1b[?1049h\x1b[?25l") }

// Leave shows what was there before Enter.
func Leave(w io.Writer) { io.WriteString(w, "\x1b[?25h\x1b[?1049l") }

// Draw puts the lines where those of the last Draw were.
func Draw(w io.Writer, lines []string) {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	io.WriteString(w, b.String())
}

// A Progress is one line of a terminal that is written again and again.
type Progress struct {
	w     io.Writer
	shown bool
}

// NewProgress returns one on f. If f is no terminal it shows nothing.
func NewProgress(f *os.File) *Progress {
	if !IsTerminal(f) {
		return &Progress{}
	}
	return &Progress{w: f}
}

// Show replaces the line.
func (p *Progress) Show(format string, args ...any) {
	if p.w != nil {
		fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
		p.shown = true
	}
}

// Clear removes the line.
func (p *Progress) Clear() {
	if p.shown {
		io.WriteString(p.w, "\r\x1b[K")
		p.shown = false
	}
}
