package main

import (
	"flag"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// helpOf returns the help of a command.
func helpOf(t *testing.T, name string) string {
	t.Helper()
	var out, errs strings.Builder
	require.Zero(t, run([]string{"help", name}, &out, &errs))
	require.Empty(t, errs.String())
	return out.String()
}

// TestEveryCommandHasHelp from which a reader can learn: what it does, its exit status, examples.
func TestEveryCommandHasHelp(t *testing.T) {
	for _, c := range commands() {
		text := helpOf(t, c.name)
		require.NotEmpty(t, c.short, c.name)
		assert.True(t, strings.HasPrefix(text, "usage: sdp "+c.name+" "), c.name)
		assert.Greater(t, len(c.long), 200, c.name)
		assert.Regexp(t, `(?m)^The exit status is\n\n  0 +\S.*\n  1 +\S`, text, c.name)
		assert.Regexp(t, `(?m)^Examples:\n\n\t`, text, c.name)
		assert.Contains(t, pages[c.name].examples, "sdp "+c.name, c.name)
		for line := range strings.Lines(text) {
			assert.LessOrEqual(t, len([]rune(line)), 110, "%s: %s", c.name, line)
		}
	}
	for name := range pages {
		assert.NotNil(t, lookup(name), "there is no command %s", name)
	}
	var out, errs strings.Builder
	require.Equal(t, 2, run([]string{"no-such"}, &out, &errs))
	require.Contains(t, errs.String(), `unknown command "no-such"`)
	require.Zero(t, run([]string{"help", "help"}, &out, &errs))
	require.Contains(t, out.String(), "The commands are")
}

// flagsOf returns the flags of a command, or nil if another program parses them.
func flagsOf(c *command) *flag.FlagSet {
	if c.flags == nil {
		return nil
	}
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	c.flags(fs)
	return fs
}

// TestHelpKnowsTheFlags: the help describes each flag, with its unit and its default, and names
// none that does not exist.
func TestHelpKnowsTheFlags(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range commands() {
		fs := flagsOf(c)
		if fs == nil {
			continue
		}
		text := helpOf(t, c.name)
		fs.VisitAll(func(f *flag.Flag) {
			names["-"+f.Name] = true
			assert.Contains(t, text, "\n  -"+f.Name, c.name)
			unit, usage := flag.UnquoteUsage(f)
			if !isBool(f) {
				assert.Contains(t, f.Usage, "`", "%s -%s: what is its value called?", c.name, f.Name)
			}
			assert.Greater(t, len(usage), 5, "%s -%s", c.name, f.Name)
			get, ok := f.Value.(flag.Getter)
			if !ok {
				return // it is parsed by the command
			}
			switch get.Get().(type) {
			case time.Duration:
				assert.Equal(t, "time", unit, "%s -%s", c.name, f.Name)
				assert.Contains(t, text, "such as 300ms")
				zeroIsExplained(t, c, f)
			case int, int64, uint:
				assert.Contains(t, []string{"number", "bytes", "mark"}, unit, "%s -%s", c.name, f.Name)
				zeroIsExplained(t, c, f)
			}
		})
	}
	require.Greater(t, len(names), 20)
	mentioned := regexp.MustCompile(`(?:^|[\s("])(-[a-z][a-z-]*)`)
	for _, c := range commands() {
		for line := range strings.Lines(c.long) {
			line, _, _ = strings.Cut(line, "| tshark")
			for _, m := range mentioned.FindAllStringSubmatch(line, -1) {
				assert.True(t, names[m[1]] || m[1] == "-verbs" || m[1] == "-iwarp", "%s: %s in %q", c.name, m[1], line)
			}
		}
	}
}

func isBool(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

func zeroIsExplained(t *testing.T, c *command, f *flag.Flag) {
	t.Helper()
	if f.DefValue == "0" || f.DefValue == "0s" {
		assert.Contains(t, f.Usage, "0: ", "%s -%s: what does its default mean?", c.name, f.Name)
	}
}

// TestExamplesParse: the commands in the help's examples and texts have flags that exist.
func TestExamplesParse(t *testing.T) {
	count := 0
	for _, of := range commands() {
		for line := range strings.Lines(of.long + "\n" + strings.ReplaceAll(pages[of.name].examples, "\n", "\n\t")) {
			_, line, ok := strings.Cut(strings.TrimRight(line, "\n"), "\t")
			if !ok {
				continue
			}
			line, _, _ = strings.Cut(line, "#")
			line, _, _ = strings.Cut(line, "|")
			line, _, _ = strings.Cut(line, ">")
			words := strings.Fields(line)
			if len(words) > 0 && words[0] == "use" {
				continue // a rule
			}
			at := slices.Index(words, "sdp")
			if at < 0 || len(words) < at+2 {
				continue
			}
			c := lookup(words[at+1])
			if !assert.NotNil(t, c, line) || c.flags == nil {
				continue
			}
			assert.NoError(t, flagsOf(c).Parse(words[at+2:]), line)
			count++
		}
	}
	require.Greater(t, count, 20)
}

// TestDevicesHaveNoShortForm: "sdp build -iwarp" passes the flag to go build, which does not know it.
func TestDevicesHaveNoShortForm(t *testing.T) {
	for _, name := range []string{"go", "build", "test", "run", "install"} {
		assert.Contains(t, helpOf(t, name), `"sdp go -iwarp build"`, name)
	}
}
