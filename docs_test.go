package gosdp_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLinksInDocs: the target of each relative link in a Markdown file must exist, both the
// file and the heading.
func TestLinksInDocs(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	checked := 0
	for _, page := range markdown(t) {
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			target, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // an absolute URL
			}
			checked++
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), filepath.FromSlash(target))
			}
			if _, err := os.Stat(file); !assert.NoError(t, err, "%s: %s", page, m[1]) || heading == "" {
				continue
			}
			assert.Contains(t, headings(t, file), heading, "%s: %s", page, m[1])
		}
	}
	assert.Greater(t, checked, 20)
}

// markdown returns the Markdown files of the repository.
func markdown(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md", "*/*/*/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	require.Contains(t, files, "README.md")
	return files
}

// headings returns the anchors that GitHub generates for the headings of a page.
func headings(t *testing.T, file string) (anchors []string) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	dropped := regexp.MustCompile(`[^\p{L}\p{N}\-_ ]`)
	fenced := false
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		text := strings.TrimLeft(line, "#")
		if fenced || text == line || !strings.HasPrefix(text, " ") {
			continue
		}
		slug := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(text)), "")
		anchors = append(anchors, strings.ReplaceAll(slug, " ", "-"))
	}
	return anchors
}

// TestOverviewIsShort: docs/architecture.md must have at most 2,500 words.
func TestOverviewIsShort(t *testing.T) {
	b, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	assert.LessOrEqual(t, len(strings.Fields(string(b))), 2500)
}
