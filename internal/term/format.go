// Package term formats the output of the tool sdp: numbers, tables, and the control sequences
// that redraw a screen.
package term

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Clean replaces every character of text that does not print, so that text from another program
// cannot move the terminal's cursor or change its colours.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// Bytes returns a number of bytes in three digits and a unit: "1.50 MB".
func Bytes(n float64) string { return scaled(n, "B") }

// Rate formats a number of bytes per second.
func Rate(n float64) string { return scaled(n, "B") + "/s" }

// Bits formats a number of bytes per second in bits per second: "9.41 Gbit/s".
func Bits(bytes float64) string { return scaled(bytes*8, "bit") + "/s" }

func scaled(n float64, unit string) string {
	prefixes := []string{"", "k", "M", "G", "T", "P", "E"}
	i := 0
	for n >= 999.5 && i < len(prefixes)-1 {
		n /= 1000
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%.0f %s", n, unit)
	}
	return fmt.Sprintf("%s %s%s", digits(n), prefixes[i], unit)
}

func digits(n float64) string {
	switch {
	case n < 9.995:
		return fmt.Sprintf("%.2f", n)
	case n < 99.95:
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

// Duration returns a time in three digits and a unit: "12.3 µs".
func Duration(d time.Duration) string {
	n := float64(d)
	for _, u := range []struct {
		size float64
		unit string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if n >= u.size*0.9995 {
			return digits(n/u.size) + " " + u.unit
		}
	}
	return fmt.Sprintf("%.0f ns", n)
}

// Age formats a duration in its two largest units: "3d4h".
func Age(d time.Duration) string {
	s := int64(max(0, d) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%dh", s/86400, s/3600%24)
}

// A Table aligns columns.
type Table struct {
	right []bool // columns of numbers
	rows  [][]string
}

// NewTable returns a table with these headings. A heading that begins with ">" aligns its column
// at the right.
func NewTable(headings ...string) *Table {
	t := &Table{right: make([]bool, len(headings))}
	row := make([]string, len(headings))
	for i, h := range headings {
		row[i], t.right[i] = strings.CutPrefix(h, ">")
	}
	t.rows = append(t.rows, row)
	return t
}

// Row adds a row.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(t.right))
	for i := range row {
		if i < len(cells) {
			row[i] = Clean(cells[i])
		}
	}
	t.rows = append(t.rows, row)
}

// Lines returns the rows, each cut to width characters; 0: as long as they are.
func (t *Table) Lines(width int) []string {
	widths := make([]int, len(t.right))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(t.rows))
	for n, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.right[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		lines[n] = Cut(strings.TrimRight(line.String(), " "), width)
	}
	return lines
}

// String returns the table with a line for each row.
func (t *Table) String() string { return strings.Join(t.Lines(0), "\n") + "\n" }

// Cut returns at most width characters of a line; 0: all.
func Cut(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width])
}
