//go:build linux && cgo

package inside

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

// libraryVariable makes the test binary run with replaced libraries. Its value is the
// expected error.
const libraryVariable = "VERBS_LIBRARY"

// TestLibraries: the two libraries are missing or too old, or there is no device. Connections
// use iwarp. If only verbs is allowed, network "sdp" fails; the error says what is wrong and
// what to do.
func TestLibraries(t *testing.T) {
	if want := os.Getenv(libraryVariable); want != "" {
		t.Setenv("VERBS_ADDRESS", "127.0.0.1")
		t.Setenv("SDP_DEVICES", "verbs")
		_, err := sdp.Listen("sdp", "127.0.0.1:0")
		t.Log(err)
		for _, part := range strings.Split(want, "...") {
			require.ErrorContains(t, err, part)
		}
		_, err = (&sdp.Dialer{}).DialContext(context.Background(), "sdp", "127.0.0.1:1")
		require.ErrorContains(t, err, strings.Split(want, "...")[0])
		cfg := *onVerbs
		cfg.Devices = []string{"verbs", "iwarp"}
		client, _ := pair(t, &cfg)
		require.Equal(t, "iwarp", client.Device())
		require.Contains(t, client.Stats().Declined["verbs"], strings.Split(want, "...")[0])
		return
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("missing: gcc, to build the libraries")
	}
	shim, err := os.ReadFile("../../../rdma/verbs/shim.c")
	if err != nil {
		t.Skip("missing: the source of rdma/verbs, which lists the required symbols: ", err)
	}
	const ibverbs, rdmacm = "libibverbs.so.1", "librdmacm.so.1"
	noDevice, noModule := "*n = 0; return list;", "errno = ENOSYS; return 0;"
	for _, l := range []struct {
		name    string
		broken  string // a file that is not a library
		without string // a symbol or version that the libraries lack
		devices string // the body of ibv_get_device_list
		want    string
	}{
		{name: "none", broken: ibverbs, want: ibverbs + " cannot be opened...install rdma-core"},
		{name: "no librdmacm", broken: rdmacm, want: rdmacm + " cannot be opened...install rdma-core"},
		{name: "old", without: "IBVERBS_1.1", want: ibverbs + " is too old...of version IBVERBS_1.1; update rdma-core"},
		{name: "old librdmacm", without: "rdma_resolve_route", want: rdmacm + " is too old...no rdma_resolve_route...update rdma-core"},
		{name: "no device", want: "no RDMA device on this machine; rdma link shows"},
		{name: "no module", devices: noModule, want: "ib_uverbs is not loaded...modprobe"},
	} {
		t.Run(l.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, library := range []string{ibverbs, rdmacm} {
				path := filepath.Join(dir, library)
				if library == l.broken {
					require.NoError(t, os.WriteFile(path, []byte("no library"), 0o755))
					continue
				}
				devices := noDevice
				if l.devices != "" {
					devices = l.devices
				}
				source := "#include <errno.h>\n"
				script := ""
				for version, names := range symbols(string(shim), library == rdmacm) {
					kept := slices.DeleteFunc(names, func(name string) bool { return name == l.without })
					if version != l.without {
						script += fmt.Sprintf("%s { global: %s; };\n", version, strings.Join(kept, "; "))
					}
					for _, name := range kept {
						body := "return 0;"
						if name == "ibv_get_device_list" {
							body = devices
						}
						source += fmt.Sprintf("void *%s(int *n) { static void *list[1]; (void)list; %s }\n", name, body)
					}
				}
				write := func(name, content string) string {
					path := filepath.Join(dir, name)
					require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
					return path
				}
				output, err := exec.Command(gcc, "-shared", "-fPIC", "-o", path, "-Wl,-soname,"+library,
					"-Wl,--version-script="+write("versions", script), write("source.c", source)).CombinedOutput()
				require.NoError(t, err, "%s", output)
			}
			child := exec.Command(os.Args[0], "-test.run", "^TestLibraries$", "-test.v")
			child.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, libraryVariable+"="+l.want)
			output, err := child.CombinedOutput()
			require.NoError(t, err, "%s", output)
			assert.Contains(t, string(output), "--- PASS: TestLibraries")
		})
	}
}

// symbols returns the symbols that rdma/verbs requires of a library, by version.
func symbols(shim string, rdmacm bool) map[string][]string {
	found := make(map[string][]string)
	for _, s := range regexp.MustCompile(`(?m)^\t(IBVERBS|RDMACM)\((\w+)\),$|^\t\{"(\w+)", 0, "(IBVERBS_1.0)"`).FindAllStringSubmatch(shim, -1) {
		version, name := s[4], s[2]+s[3]
		switch s[1] {
		case "IBVERBS":
			version = "IBVERBS_1.1"
		case "RDMACM":
			version = "RDMACM_1.0"
		}
		if rdmacm == strings.HasPrefix(version, "RDMACM") {
			found[version] = append(found[version], name)
		}
	}
	return found
}
