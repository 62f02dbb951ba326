package adopt

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestMarkerIsFoundAnywhere(t *testing.T) {
	const mark = "sdp-go-" + "build{gosdp=v1.2.3;go=go1.26.8}" // in two parts: the tool contains this file
	const other = "sdp-go-" + "build{gosdp=v1.0.0;go=go1.25.1}"
	for _, at := range []int{0, 1, 1<<20 - 20, 1<<20 - 1, 1 << 20, 2<<20 - 300} {
		text := strings.Repeat("x", at) + other + mark + strings.Repeat("y", 1000)
		found, err := search(strings.NewReader(text), "go1.26.8")
		require.NoError(t, err)
		require.Equal(t, "v1.2.3", found, "at %d", at)
		found, err = search(iotest.OneByteReader(strings.NewReader(text[max(0, at-10):])), "go1.26.8")
		require.NoError(t, err)
		require.Equal(t, "v1.2.3", found)
	}
	for _, text := range []string{"", "sdp-go-build{gosdp=@@VERSION@@;go=@@GOVERSION@@}", "sdp-go-" + "build{gosdp=v1;go=rust}", other} {
		found, err := search(bytes.NewReader([]byte(text)), "go1.26.8")
		require.NoError(t, err)
		require.Empty(t, found, text)
	}
}

// TestMarkerAloneIsNotSDP: a program that embeds the text, or another program, has no SDP. The
// function that uses the marker tells, in a program without symbols too, and whatever its version of Go is called.
func TestMarkerAloneIsNotSDP(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("missing: Linux, where programs have SDP")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.com/program\n\ngo 1.25\n",
		"plain/main.go":  "package main\n\nimport (\n\t_ \"embed\"\n\t\"os\"\n)\n\n//go:embed marker\nvar marker string\n\nfunc main() { os.Stdout.WriteString(marker) }\n",
		"plain/marker":   "sdp-go-" + "build{gosdp=v1.2.3;go=" + release(runtime.Version()) + "}\x00net.sdpReport\x00",
		"hooked/main.go": "package main\n\nimport (\n\t_ \"embed\"\n\t\"os\"\n\t\"example.com/program/net\"\n)\n\n//go:embed marker\nvar marker string\n\nfunc main() { os.Stdout.WriteString(marker); net.Report() }\n",
		"hooked/marker":  "sdp-go-" + "build{gosdp=v1.2.3;go=" + release(runtime.Version()) + "}",
		"net/net.go":     "package net\n\nimport _ \"unsafe\"\n\n//go:linkname sdpReport net.sdpReport\n//go:noinline\nfunc sdpReport() { println() }\n\nfunc Report() { sdpReport() }\n",
	} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	for _, name := range []string{"plain", "hooked"} {
		version := release(runtime.Version()) + " (Red Hat 1-2) X:jsonv2"
		cmd := exec.Command("go", "build", "-ldflags=-s -w '-X=runtime.buildVersion="+version+"'", "-o", name+".exe", "./"+name)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		p, err := ReadProgram(filepath.Join(dir, name+".exe"))
		require.NoError(t, err)
		require.Equal(t, version, p.Go)
		require.Equal(t, name == "hooked", p.SDP, name)
	}
}
