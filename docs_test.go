package gosdp_test

import (
	"io/fs"
	"os"
	"os/exec"
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

// TestDocsAreShort: README must have at most 900 words, and README and the pages in docs together
// at most 25,000.
func TestDocsAreShort(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	readme := words(t, "README.md")
	assert.LessOrEqual(t, readme, 900)
	all := readme
	for _, page := range pages {
		all += words(t, page)
	}
	assert.LessOrEqual(t, all, 25_000)
}

// TestReferenceIsShort: the documentation of package sdp must have at most 500 lines.
func TestReferenceIsShort(t *testing.T) {
	text, err := exec.CommandContext(t.Context(), "go", "doc", "-all", "./sdp").Output()
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(string(text), "\n"), 500)
}

// words returns the number of words in a file.
func words(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return len(strings.Fields(string(b)))
}

// TestTargetsInDocs: each make target that a Markdown file names must exist.
func TestTargetsInDocs(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	named := regexp.MustCompile("`make ([a-z][a-z0-9-]*)")
	checked := 0
	for _, page := range markdown(t) {
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range named.FindAllStringSubmatch(string(b), -1) {
			checked++
			assert.Regexp(t, `(?m)^`+m[1]+`:`, string(makefile), page)
		}
	}
	assert.Positive(t, checked)
}

// TestVariablesInDocs: each environment variable of the library and of the tool is described on
// docs/operations.md or docs/adoption.md.
func TestVariablesInDocs(t *testing.T) {
	var pages strings.Builder
	for _, page := range []string{"docs/operations.md", "docs/adoption.md"} {
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		pages.Write(b)
	}
	variable := regexp.MustCompile(`"(SDP_[A-Z_]+)[="]`)
	found := 0
	for _, top := range []string{"sdp", "internal", "listener", "rdma", "cmd"} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			for _, m := range variable.FindAllStringSubmatch(string(b), -1) {
				found++
				assert.Contains(t, pages.String(), m[1], path)
			}
			return err
		})
		require.NoError(t, err)
	}
	assert.Greater(t, found, 10)
}
