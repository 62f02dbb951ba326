package engine

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// allRules are the rules of every table here, as the tables have them.
func allRules() (all []string) {
	for _, r := range protocolRules {
		all = append(all, r.rule)
	}
	for _, r := range transferRules {
		all = append(all, r.rule)
	}
	for _, r := range decisionRules {
		all = append(all, r.rule)
	}
	for _, r := range append(requestRules(), replyRules()...) {
		all = append(all, r.rule)
	}
	return all
}

// TestRulesStandOnThePage: each section of docs/protocol.md has a row in the tables of this
// package. Each row quotes its rule from a section of that page, or names the section of the
// draft or RFC that has it. If a rule on the page changes, this test shows its rows.
func TestRulesStandOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	require.NoError(t, err)
	sections := make(map[string]string)
	for _, part := range strings.Split("\n"+string(page), "\n## ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		sections[strings.TrimSpace(name)] = plainWords(text)
	}
	has := make(map[string]bool)
	for _, rule := range allRules() {
		name, words, _ := strings.Cut(rule, ": ")
		text, there := sections[name]
		assert.True(t, there, "%q is no section of the page", name)
		if !strings.HasPrefix(words, "§") && !strings.HasPrefix(words, "RFC ") {
			assert.Contains(t, text, words, name)
		}
		has[name] = true
	}
	delete(sections, "Example") // which only shows what the others say
	delete(sections, "verbs")   // whose rules rdma/rdmatest breaks on devices, in test/lab
	for name := range sections {
		assert.True(t, has[name], "no row breaks a rule of %q", name)
	}
}

// plainWords is text in one line, without emphasis.
func plainWords(text string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("*", "", "`", "").Replace(text)), " ")
}
