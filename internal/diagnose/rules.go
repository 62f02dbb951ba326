package diagnose

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/gosdp/gosdp/internal/rules"
)

// Rules describes the operator's file of rules, as far as it concerns a program of this process's
// name.
type Rules struct {
	File    string `json:"file"`
	Program string `json:"program"`
	Mistake string `json:"mistake,omitempty"` // why programs ignore the file
	Count   int    `json:"count"`             // the rules for all programs
	Own     int    `json:"own"`               // those for this one

	set *rules.Set // for this program; nil: there is a mistake
}

func readRules(file string) *Rules {
	if file == "" {
		return nil
	}
	r := &Rules{File: file, Program: rules.Program()}
	all, err := rules.Load(file)
	if err != nil {
		r.Mistake = err.Error()
		return r
	}
	r.set = all.For(r.Program)
	r.Count, r.Own = len(all.Rules), len(r.set.Rules)
	return r
}

// of returns the rule for a Dial to an address; nil: there is none.
func (r *Rules) of(network string, at netip.AddrPort) *rules.Rule {
	if r == nil || r.set == nil || !strings.HasPrefix(network, "tcp") || !at.IsValid() {
		return nil
	}
	rule, _ := r.set.Decide(rules.Client, at.Addr(), at.Port())
	return rule
}

// apply records the rule for a connection to an address, and returns what it says.
func (p *Path) apply(r *Rules, at netip.AddrPort) rules.Use {
	rule := r.of(p.Network, at)
	if rule == nil {
		return rules.Both
	}
	p.Rule = fmt.Sprintf("%s:%d: %v", r.File, rule.Line, rule)
	return rule.Use
}
