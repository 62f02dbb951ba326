// Package rules reads the files that the environment variable SDP_CONFIG names. They have the
// grammar of libsdp.conf, and say which programs use SDP for which addresses:
//
//	use sdp|tcp|both server|listen|client|connect PROGRAM ADDRESS[/BITS]:PORT[-PORT]
//	share PROGRAM with USER ...
//	log [destination stderr|syslog|file NAME] [min-level LEVEL]
//
// The first rule that matches decides. The second statement is not libsdp's: it names the users whose
// programs may share memory with a program. See docs/rules.md.
package rules

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Use is what a rule says about a connection or a listener.
type Use uint8

const (
	Both Use = iota // SDP if the peer speaks it, and TCP otherwise
	SDP             // SDP only
	TCP             // TCP only
)

// String returns the word that stands for u in a file.
func (u Use) String() string { return [...]string{"both", "sdp", "tcp"}[u] }

// Role is the end of a connection that a rule is about.
type Role uint8

const (
	Server Role = iota // a rule applies to the address that the program listens on
	Client             // a rule applies to the address that the program connects to
)

// String returns the word that stands for r in a file.
func (r Role) String() string { return [...]string{"server", "client"}[r] }

// A Rule is one statement "use".
type Rule struct {
	Line        int
	Use         Use
	Role        Role
	Program     string       // a pattern with * and ?
	Prefix      netip.Prefix // the zero Prefix means all addresses
	First, Last uint16       // ports; First 0 means all
}

// String returns the rule as a file has it.
func (r *Rule) String() string {
	address := "*"
	if r.Prefix.IsValid() {
		address = r.Prefix.Addr().String()
		if r.Prefix.Addr().Is6() {
			address = "[" + address + "]"
		}
		if !r.Prefix.IsSingleIP() {
			address = fmt.Sprintf("%s/%d", address, r.Prefix.Bits())
		}
	}
	ports := "*"
	switch {
	case r.First == 0:
	case r.First == r.Last:
		ports = fmt.Sprint(r.First)
	default:
		ports = fmt.Sprintf("%d-%d", r.First, r.Last)
	}
	return fmt.Sprintf("use %v %v %s %s:%s", r.Use, r.Role, r.Program, address, ports)
}

// A Set has the statements of one file. It does not change, so it may be used concurrently.
type Set struct {
	File   string
	Rules  []Rule
	Shares []Share
	Log    Log
}

// For returns the set without the statements for other programs. name is the program's, without a
// directory.
func (s *Set) For(name string) *Set {
	own := &Set{File: s.File, Log: s.Log}
	for _, r := range s.Rules {
		if matchName(r.Program, name) {
			own.Rules = append(own.Rules, r)
		}
	}
	for _, h := range s.Shares {
		if matchName(h.Program, name) {
			own.Shares = append(own.Shares, h)
		}
	}
	return own
}

// Decide returns the first rule for an address, whatever the program is, or nil if none matches.
// The caller may not know the address yet (the zero Addr) or the port (0). If the result depends on
// it, known is false. A client's address that is all zeros means the loopback address, to which such
// a connection goes. Decide allocates nothing.
func (s *Set) Decide(role Role, address netip.Addr, port uint16) (r *Rule, known bool) {
	address = address.Unmap().WithZone("")
	if role == Client && address.IsUnspecified() {
		address = loopback(address)
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		if r.Role != role {
			continue
		}
		a, p := r.matchAddress(address), r.matchPort(port)
		switch {
		case a == no || p == no:
		case a == yes && p == yes:
			return r, true
		default:
			return nil, false
		}
	}
	return nil, true
}

// loopback returns the loopback address of a's family.
func loopback(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// answer says whether a rule matches.
type answer uint8

const (
	no answer = iota
	yes
	unknown
)

func answerOf(b bool) answer {
	if b {
		return yes
	}
	return no
}

// matchAddress matches a listener on all addresses only with a rule for 0.0.0.0 or [::], because
// such a listener has no address of its own.
func (r *Rule) matchAddress(a netip.Addr) answer {
	switch {
	case !r.Prefix.IsValid():
		return yes
	case !a.IsValid():
		return unknown
	case a.IsUnspecified():
		return answerOf(r.Prefix.Addr().IsUnspecified())
	}
	return answerOf(r.Prefix.Contains(a))
}

func (r *Rule) matchPort(port uint16) answer {
	switch {
	case r.First == 0:
		return yes
	case port == 0:
		return unknown
	}
	return answerOf(r.First <= port && port <= r.Last)
}

// matchName reports whether the pattern matches the whole name. Its time is at most proportional to
// the product of both lengths.
func matchName(pattern, name string) bool {
	star, restart := -1, 0 // the last * and the end of what it has matched
	p, n := 0, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, restart = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			restart++
			p, n = star+1, restart
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// Program returns the name by which rules know this program: the base name of its first argument,
// by which it was called, and on Windows without ".exe".
func Program() string {
	if len(os.Args) == 0 {
		return ""
	}
	name := filepath.Base(os.Args[0])
	if ext := filepath.Ext(name); runtime.GOOS == "windows" && strings.EqualFold(ext, ".exe") {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// Shadow returns the rule that stands before the i-th one and matches everything that it matches,
// so that the i-th one never decides; nil if there is none.
func (s *Set) Shadow(i int) *Rule {
	for j := range s.Rules[:i] {
		if s.Rules[j].covers(&s.Rules[i]) {
			return &s.Rules[j]
		}
	}
	return nil
}

// covers reports whether r matches everything that o matches. It compares patterns of names only in
// simple cases.
func (r *Rule) covers(o *Rule) bool {
	return r.Role == o.Role &&
		(strings.Trim(r.Program, "*") == "" || r.Program == o.Program || !strings.ContainsAny(o.Program, "*?") && matchName(r.Program, o.Program)) &&
		(!r.Prefix.IsValid() || o.Prefix.IsValid() && r.Prefix.Bits() <= o.Prefix.Bits() && r.Prefix.Contains(o.Prefix.Addr())) &&
		(r.First == 0 || o.First != 0 && r.First <= o.First && o.Last <= r.Last)
}
