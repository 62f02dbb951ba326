//go:build unix

package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLoadDoesNotBlock on a FIFO that no program writes to, not even if it replaces the file after the
// check.
func TestLoadDoesNotBlock(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	_, err := Load(fifo)
	assert.EqualError(t, err, fifo+": not a regular file")
	opened := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(fifo, os.O_RDONLY|nonblocking, 0)
		if err == nil {
			f.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		assert.NoError(t, err)
	case <-time.After(time.Minute):
		t.Error("opening the FIFO blocks")
		f, err := os.OpenFile(fifo, os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		<-opened
	}
}

func TestLogPath(t *testing.T) {
	for _, v := range []struct {
		name string
		uid  int
		want string
	}{
		{"sdp.log", 0, "/var/log/sdp.log"},
		{"/srv/sdp.log", 0, "/srv/sdp.log"},
		{"sdp.log", 1000, "/tmp/sdp.log.1000"},
		{"/srv/sdp.log", 1000, "/srv/sdp.log.1000"},
	} {
		assert.Equal(t, v.want, (&Log{Name: v.name}).Path(v.uid))
	}
}

func TestLogFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	s := mustParse(t, "log min-level 7\nlog destination file "+name)
	path := s.Log.Path(os.Geteuid())
	assert.Equal(t, "log destination file "+name+" min-level 7", s.Log.String())
	s.Log.Write(LevelError, "prog", "one")
	s.Log.Write(LevelSummary, "pr\nog\x1b", "two\nlines \x1b[2J\u2028\u200f\u202e\u2066é")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(string(b), "\n")
	require.Len(t, lines, 3)
	assert.True(t, strings.HasSuffix(lines[0], fmt.Sprintf(" prog[%d] one", os.Getpid())), lines[0])
	assert.True(t, strings.HasSuffix(lines[1], fmt.Sprintf(" pr?og?[%d] two?lines ?[2J????é", os.Getpid())), "%q", lines[1])

	few := mustParse(t, "log destination file "+name+" min-level 8")
	few.Log.Write(LevelSummary, "prog", "not this")
	none := mustParse(t, "")
	none.Log.Write(LevelError, "prog", "nor this")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(b), string(after))
}

// TestLogFileOfOthers: what another user could have prepared in a directory that all can write to is
// not written to, and a FIFO does not block the program.
func TestLogFileOfOthers(t *testing.T) {
	for what, prepare := range map[string]func(path string) error{
		"a symbolic link": func(path string) error { return os.Symlink(path+".target", path) },
		"another name":    func(path string) error { return os.Link(path+".target", path) },
		"a FIFO":          func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"writable by all": func(path string) error {
			os.WriteFile(path, nil, 0o666)
			return os.Chmod(path, 0o666)
		},
	} {
		path := filepath.Join(t.TempDir(), "log")
		require.NoError(t, os.WriteFile(path+".target", nil, 0o600))
		require.NoError(t, prepare(path), what)
		assert.Error(t, appendLine(path, "a line\n"), what)
		for _, file := range []string{path, path + ".target"} {
			if info, err := os.Lstat(file); assert.NoError(t, err) && info.Mode().IsRegular() {
				assert.Zero(t, info.Size(), what)
			}
		}
	}
}

// TestLogSaysOnceThatItFails on standard error.
func TestLogSaysOnceThatItFails(t *testing.T) {
	s := mustParse(t, "log destination file "+t.TempDir()+"/missing/log min-level 7")
	copied := s.For("x")
	stderr := os.Stderr
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	os.Stderr = w
	for range 3 {
		s.Log.Write(LevelSummary, "prog", "message")
		copied.Log.Write(LevelSummary, "prog", "message")
	}
	os.Stderr = stderr
	w.Close()
	b := make([]byte, 4096)
	n, _ := r.Read(b)
	assert.Equal(t, 1, strings.Count(string(b[:n]), "sdp: log message lost: open "), string(b[:n]))
}
