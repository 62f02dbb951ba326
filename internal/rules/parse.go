package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// An Error is a mistake in a file.
type Error struct {
	File   string
	Line   int // 0: the file as a whole
	Reason string
}

// Error returns, for instance, `/etc/sdp.conf:7: port "0": want 1 to 65535`.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Reason
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// Errors are the mistakes in a file, in the order of its lines. There is at least one.
type Errors []*Error

// maxErrors limits how many mistakes Parse looks for.
const maxErrors = 20

// Error returns the first mistake, and how many more there are.
func (e Errors) Error() string {
	switch more := len(e) - 1; more {
	case 0:
		return e[0].Error()
	case 1:
		return e[0].Error() + ", and 1 more error"
	default:
		return fmt.Sprintf("%v, and %d more errors", e[0], more)
	}
}

// Parse parses the text of a file. If there are mistakes, the error has type Errors.
func Parse(file, text string) (*Set, error) {
	s := &Set{File: file}
	var found Errors
	text = strings.TrimPrefix(text, "\ufeff")
	for number := 1; text != "" && len(found) < maxErrors; number++ {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		if err := s.statement(number, words(line)); err != nil {
			found = append(found, &Error{file, number, err.Error()})
		}
	}
	if len(found) > 0 {
		return nil, found
	}
	return s, nil
}

// words splits a line, without its comment. As in libsdp, a comment begins with the first # that is
// not within the name of a program or a file.
func words(line string) []string {
	all := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == '\r' })
	for i, w := range all {
		switch at := strings.IndexByte(w, '#'); {
		case at == 0:
			return all[:i]
		case at > 0 && !isName(all, i):
			all[i] = w[:at]
			return all[:i+1]
		}
	}
	return all
}

// isName reports whether the word is in the place of a program's or a file's name.
func isName(all []string, i int) bool {
	return all[0] == "use" && i == 3 || all[0] == "share" && i == 1 || all[0] == "log" && i > 1 && all[i-1] == "file"
}

func (s *Set) statement(line int, w []string) error {
	switch {
	case len(w) == 0:
		return nil
	case w[0] == "use":
		r, err := parseRule(w[1:])
		if err != nil {
			return err
		}
		r.Line = line
		s.Rules = append(s.Rules, r)
		return nil
	case w[0] == "share":
		h, err := parseShare(w[1:], findUser)
		if err != nil {
			return err
		}
		h.Line = line
		s.Shares = append(s.Shares, h)
		return nil
	case w[0] == "log":
		return s.Log.parse(line, w[1:])
	}
	return fmt.Errorf("unknown statement %s: want use, share or log", quote(w[0]))
}

// quote quotes a word of the file for a message. It shortens a long one.
func quote(word string) string {
	const most = 40
	if len(word) > most {
		return strconv.Quote(word[:most]) + "..."
	}
	return strconv.Quote(word)
}

const form = "use sdp|tcp|both server|client PROGRAM ADDRESS:PORT"

func parseRule(w []string) (r Rule, err error) {
	if len(w) < 4 {
		return r, fmt.Errorf("got %d words after use: want %s", len(w), form)
	}
	switch w[0] {
	case "sdp":
		r.Use = SDP
	case "tcp":
		r.Use = TCP
	case "both":
		r.Use = Both
	default:
		return r, fmt.Errorf("%s after use: want sdp, tcp or both", quote(w[0]))
	}
	switch w[1] {
	case "server", "listen":
		r.Role = Server
	case "client", "connect":
		r.Role = Client
	default:
		return r, fmt.Errorf("role %s: want server, listen, client or connect", quote(w[1]))
	}
	if r.Program, err = parseProgram(w[2]); err != nil {
		return r, err
	}
	where, err := join(w[3:])
	if err == nil {
		err = r.parseWhere(where)
	}
	return r, err
}

// parseProgram parses the pattern of a program's name.
func parseProgram(word string) (string, error) {
	switch {
	case strings.ContainsAny(word, `[\`):
		return "", fmt.Errorf("program %s: want a name, in which * and ? are the only wildcards", quote(word))
	case strings.Contains(word, "/"):
		return "", fmt.Errorf("program %s: want a name without a directory", quote(word))
	}
	return word, nil
}

// join joins the words of ADDRESS:PORT. There may be blanks around its punctuation.
func join(w []string) (string, error) {
	all := w[0]
	for _, next := range w[1:] {
		if !strings.ContainsAny(all[len(all)-1:]+next[:1], ":/-") {
			return "", fmt.Errorf("%s after %s: want nothing after ADDRESS:PORT", quote(next), quote(all))
		}
		all += next
	}
	return all, nil
}

// parseWhere parses ADDRESS[/BITS]:PORT[-PORT].
func (r *Rule) parseWhere(text string) error {
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 || strings.HasSuffix(text, "]") {
		return fmt.Errorf("%s has no port: want ADDRESS:PORT, such as *:*", quote(text))
	}
	address, ports := text[:colon], text[colon+1:]
	if address != "*" {
		var err error
		if r.Prefix, err = parsePrefix(address); err != nil {
			return fmt.Errorf("address %s: %w", quote(address), err)
		}
	}
	if ports == "*" {
		return nil
	}
	first, last, isRange := strings.Cut(ports, "-")
	if !isRange {
		last = first
	}
	if isRange && strings.Trim(first, "0") == "" && first != "" {
		first = "1" // libsdp.conf may begin a range with 0
	}
	var err error
	if r.First, err = parsePort(first); err == nil {
		r.Last, err = parsePort(last)
	}
	if err == nil && r.First > r.Last {
		err = fmt.Errorf("ports %s: first port is greater than last", quote(ports))
	}
	return err
}

// parsePrefix parses an address with or without the length of a prefix. An address of IPv6 is in
// brackets. With a prefix it may be without, because the manual page of libsdp.conf has such an
// example.
func parsePrefix(text string) (netip.Prefix, error) {
	address, bits, hasBits := strings.Cut(text, "/")
	inner, bracketed := strings.CutPrefix(address, "[")
	if bracketed {
		var closed bool
		if inner, closed = strings.CutSuffix(inner, "]"); !closed {
			return netip.Prefix{}, errors.New("missing closing bracket")
		}
	}
	a, err := netip.ParseAddr(inner)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("want *, or an IP address with or without /BITS")
	case a.Is4() && bracketed:
		return netip.Prefix{}, errors.New("IPv4 address in brackets")
	case a.Is6() && !bracketed && !hasBits:
		return netip.Prefix{}, errors.New("want an IPv6 address in brackets, such as [fd00::1]:80")
	case a.Zone() != "":
		return netip.Prefix{}, errors.New("want an address without a zone")
	case a.Is4In6():
		return netip.Prefix{}, errors.New("want the IPv4 address, not its IPv4-mapped form")
	case !hasBits:
		return a.Prefix(a.BitLen())
	}
	n, err := strconv.ParseUint(bits, 10, 8)
	if err != nil || int(n) > a.BitLen() {
		return netip.Prefix{}, fmt.Errorf("prefix of %s bits: want 0 to %d", quote(bits), a.BitLen())
	}
	return a.Prefix(int(n))
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %s: want * or 1 to 65535", quote(text))
	}
	return uint16(n), nil
}
