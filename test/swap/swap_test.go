package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// files is a module that dials and listens.
var files = map[string]string{
	"go.mod": "module example.com/echo\n\ngo 1.20\n",
	"echo.go": `// Package echo is an echo server.
package echo

import (
	"io"
	"net"
)

// Serve serves one client.
func Serve(ln net.Listener) {
	c, err := ln.Accept()
	if err == nil {
		io.Copy(c, c)
		c.Close()
	}
}

// Ask returns the server's answer.
func Ask(c net.Conn, text string) (string, error) {
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	answer := make([]byte, len(text))
	_, err := io.ReadFull(c, answer)
	return string(answer), err
}
`,
	"echo_test.go": `package echo

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

func TestEcho(t *testing.T) {
	for _, network := range []string{"tcp", "tcp4", "unix"} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = filepath.Join(t.TempDir(), "socket")
		}
		ln, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		go Serve(ln)
		c, err := net.Dial(network, ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("net.Dial %s: %T\n", network, c)
		if answer, err := Ask(c, "hello"); answer != "hello" || err != nil {
			t.Fatal(answer, err)
		}
		ln.Close()
	}
}

func TestTCPAlone(t *testing.T) {
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	go Serve(ln)
	c, err := net.DialTCP("tcp", nil, ln.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if answer, err := Ask(c, "hello"); answer != "hello" || err != nil {
		t.Fatal(answer, err)
	}
}

func TestHTTP(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	r, err := http.Get(s.URL)
	if err != nil || r.StatusCode != 404 {
		t.Fatal(r, err)
	}
	r.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}
`,
	"external/external_test.go": `package external_test

import (
	"net"
	"testing"

	"example.com/echo"
)

func TestExternal(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go echo.Serve(ln)
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := echo.Ask(c, "hello"); answer != "hello" || err != nil {
		t.Fatal(answer, err)
	}
}
`,
	"cmd/main.go": `package main

import (
	"fmt"
	"net"
	"os"

	"example.com/echo"
)

func main() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go echo.Serve(ln)
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		panic(err)
	}
	answer, err := echo.Ask(c, "hello")
	fmt.Println(answer, err, os.Args[1:])
	os.Exit(3)
}
`,
	"fails/fails_test.go": "package fails\n\nimport \"testing\"\n\nfunc TestFails(t *testing.T) { t.Fatal(\"as it should\") }\n",
}

// device returns the device that two programs on this host should use.
func device() string {
	if runtime.GOOS == "linux" {
		return "shm"
	}
	return "iwarp"
}

// fixture is a module and directories for calls of swap.
type fixture struct {
	swap
	report string // the value of SDP_SWAP_REPORT
	temp   string // the parent of swap's temporary directory
	out    bytes.Buffer
}

// newFixture returns a fixture with a copy of the module.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	b := &fixture{report: filepath.Join(t.TempDir(), "report"), temp: t.TempDir()}
	b.dir = t.TempDir()
	for name, text := range files {
		name = filepath.Join(b.dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	t.Setenv("SDP_SWAP_REPORT", b.report)
	t.Setenv("TMPDIR", b.temp)
	t.Setenv("TMP", b.temp) // for Windows
	b.devices = device() + ",iwarp"
	if device() == "iwarp" {
		b.devices = "iwarp"
	}
	b.swap.out, b.swap.err = &b.out, &b.out
	return b
}

// run calls swap and requires that it leaves no files.
func (b *fixture) run(t *testing.T, args ...string) error {
	t.Helper()
	before := tree(t, b.dir)
	err := b.swap.run(t.Context(), args)
	b.requireClean(t)
	assert.Equal(t, before, tree(t, b.dir), "the module's files changed")
	return err
}

// requireClean requires that swap has left no temporary files.
func (b *fixture) requireClean(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(b.temp)
	require.NoError(t, err)
	for _, e := range entries {
		assert.Failf(t, "a temporary file remains", "%s", e.Name())
	}
}

func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	require.NoError(t, filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			text, err := os.ReadFile(name)
			found[name] = string(text)
			return err
		}
		return err
	}))
	return found
}

// connections returns the role and the device of each reported connection, sorted.
func (b *fixture) connections(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(b.report)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	var found []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		require.Len(t, fields, 4)
		found = append(found, strings.Join(fields[2:], " "))
	}
	slices.Sort(found)
	return found
}

func TestTestsRunOverSDP(t *testing.T) {
	b := newFixture(t)
	require.NoError(t, b.run(t, "go", "test", "-v", "-count=1", ".", "./external"), &b.out)
	d := device()
	assert.Equal(t, []string{
		"accept " + d, "accept " + d, "accept " + d, "accept " + d,
		"dial " + d, "dial " + d, "dial " + d, "dial " + d,
	}, b.connections(t), "two connections of TestEcho, and one each of TestHTTP and TestExternal")
	for _, line := range []string{"net.Dial tcp: *sdp.Conn", "net.Dial tcp4: *sdp.Conn", "net.Dial unix: *net.UnixConn"} {
		assert.Contains(t, b.out.String(), line)
	}
}

func TestSwitchedOffIsTCP(t *testing.T) {
	b := newFixture(t)
	b.devices = "tcp"
	require.NoError(t, b.run(t, "go", "test", "-v", "-count=1", "-run", "Echo"), &b.out)
	assert.Empty(t, b.connections(t))
	assert.Contains(t, b.out.String(), "net.Dial tcp: *net.TCPConn")
}

func TestCachedResultsDependOnDevices(t *testing.T) {
	b := newFixture(t)
	for range 2 {
		require.NoError(t, b.run(t, "go", "test", "."), &b.out)
	}
	assert.Contains(t, b.out.String(), "(cached)")
	b.out.Reset()
	b.devices = "tcp"
	require.NoError(t, b.run(t, "go", "test", "."), &b.out)
	assert.NotContains(t, b.out.String(), "(cached)")
}

func TestProgramRunsOverSDP(t *testing.T) {
	b := newFixture(t)
	err := b.run(t, "go", "run", "./cmd", "one", "-two")
	assert.Equal(t, 1, status(err, false), "go run's own status")
	assert.Contains(t, b.out.String(), "hello <nil> [one -two]\n")
	assert.Equal(t, []string{"accept " + device(), "dial " + device()}, b.connections(t))
}

func TestProgramIsBuilt(t *testing.T) {
	b := newFixture(t)
	program := filepath.Join(t.TempDir(), "prog.exe")
	require.NoError(t, b.run(t, "go", "build", "-o", program, "./cmd"), &b.out)
	assert.Empty(t, b.connections(t))
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), "SDP_DEVICES=iwarp")
	out, err := cmd.Output()
	assert.Equal(t, 3, status(err, false))
	assert.Equal(t, "hello <nil> []\n", string(out))
	assert.Equal(t, []string{"accept iwarp", "dial iwarp"}, b.connections(t))
}

func TestVet(t *testing.T) {
	b := newFixture(t)
	require.NoError(t, b.run(t, "go", "vet", "./..."), &b.out)
}

func TestStatusOfTheCommand(t *testing.T) {
	b := newFixture(t)
	assert.Equal(t, 1, status(b.run(t, "go", "test", "./fails"), false))
	assert.Contains(t, b.out.String(), "as it should")
}

func TestErrorsNameTheProblem(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*fixture)
		args   string
		err    string
	}{
		{"another module", nil, "go test fmt", "fmt is not in the module example.com/echo"},
		{"no library", func(b *fixture) { b.library = filepath.Join(b.dir, "none") }, "go test", "none"},
		{"no module", func(b *fixture) { b.dir = b.temp }, "go test", "is not in a module"},
		{"both", func(b *fixture) { b.module = "example.com/m@v1.0.0" }, "go test", "-module and -C"},
		{"no command", nil, "test", "must be a go command"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newFixture(t)
			if tt.change != nil {
				tt.change(b)
			}
			err := b.run(t, strings.Fields(tt.args)...)
			require.ErrorContains(t, err, tt.err)
			assert.Equal(t, 2, status(err, false))
		})
	}
}

// TestInterruptedCommandEnds: if swap is interrupted, a test that hangs must end too, and no
// files may remain.
func TestInterruptedCommandEnds(t *testing.T) {
	b := newFixture(t)
	started := filepath.Join(b.dir, "fails", "started")
	text := `package fails

import (
	"os"
	"testing"
	"time"
)

func TestHangs(t *testing.T) {
	os.WriteFile("started", nil, 0o644)
	time.Sleep(time.Hour)
}
`
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "fails", "hangs_test.go"), []byte(text), 0o644))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error, 1)
	go func() { ended <- b.swap.run(ctx, []string{"go", "test", "-run", "TestHangs", "./fails"}) }()
	require.Eventually(t, func() bool {
		_, err := os.Stat(started)
		return err == nil
	}, 5*time.Minute, 10*time.Millisecond)
	interrupt()
	select {
	case err := <-ended:
		assert.Error(t, err)
		assert.NotZero(t, status(err, true))
	case <-time.After(time.Minute):
		t.Fatal("an interrupted command did not end")
	}
	_, err := os.Stat(b.swap.temp)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
