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

// Enter makes the terminal show its alternate screen, on which it cuts long lines: one with characters
// of two columns may be wider than it is long, and must not take a second line.
func Enter(w io.Writer) { io.WriteString(w, "\x1b[?1049h\x1b[?25l\x1b[?7l") }

// Leave shows the screen from before Enter.
func Leave(w io.Writer) { io.WriteString(w, "\x1b[?7h\x1b[?25h\x1b[?1049l") }

// Draw replaces the lines of the last Draw. It erases before it writes: after a line that fills the
// terminal's width the cursor is still on the last character, which would be erased too.
func Draw(w io.Writer, lines []string) {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines {
		erase := "\x1b[K"
		if i == len(lines)-1 {
			erase = "\x1b[J" // what is below too
		}
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(erase + line)
	}
	io.WriteString(w, b.String())
}

// A Progress is one line of a terminal that is rewritten repeatedly.
type Progress struct {
	w     io.Writer
	shown bool
}

// NewProgress returns a Progress on f. If f is not a terminal, it shows nothing.
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
