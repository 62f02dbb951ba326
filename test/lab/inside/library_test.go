//go:build linux && cgo

package inside

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

// libraryVariable has the test's program be one that finds other libraries, and
// says what is to be told of them.
const libraryVariable = "VERBS_LIBRARY"

// TestLibraries: without the two libraries, with old ones, and without a device,
// connections go over iwarp, and network "sdp" with verbs alone says what is wrong
// and what to do.
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
		t.Skip("no gcc, which makes the libraries")
	}
	shim, err := os.ReadFile("../../../rdma/verbs/shim.c")
	if err != nil {
		t.Skip("no source of rdma/verbs, which names what it needs: ", err)
	}
	const none = `
		#include <errno.h>
		void *ibv_get_device_list(int *n) { static void *list[1]; *n = 0; return list; }`
	for _, l := range []struct {
		name                   string
		without, version, more string
		breaks                 string
		want                   string
	}{
		{name: "none", breaks: "libibverbs.so.1", want: "libibverbs.so.1 cannot be opened...install rdma-core"},
		{name: "no librdmacm", breaks: "librdmacm.so.1", want: "librdmacm.so.1 cannot be opened...install rdma-core"},
		{name: "old", version: "IBVERBS_1.0", want: "libibverbs.so.1 is too old...of version IBVERBS_1.1; update rdma-core"},
		{name: "old librdmacm", without: "rdma_resolve_route", want: "librdmacm.so.1 is too old...no rdma_resolve_route...update rdma-core"},
		{name: "no device", want: "no RDMA device on this machine"},
		{name: "no module", more: "\n#define NONE", want: "ib_uverbs is not loaded"},
	} {
		t.Run(l.name, func(t *testing.T) {
			dir := t.TempDir()
			for library, macro := range map[string]string{"libibverbs.so.1": "IBVERBS", "librdmacm.so.1": "RDMACM"} {
				path := filepath.Join(dir, library)
				if library == l.breaks {
					require.NoError(t, os.WriteFile(path, []byte("no library"), 0o755))
					continue
				}
				source, versions := "", map[string][]string{}
				for _, f := range regexp.MustCompile(macro+`\((\w+)\),`).FindAllStringSubmatch(string(shim), -1) {
					if f[1] == l.without {
						continue
					}
					version := macro + "_1.0"
					if macro == "IBVERBS" && l.version == "" {
						version = "IBVERBS_1.1"
					}
					versions[version] = append(versions[version], f[1])
					if f[1] != "ibv_get_device_list" {
						source += fmt.Sprintf("int %s(void) { return -1; }\n", f[1])
					}
				}
				if macro == "IBVERBS" {
					for _, f := range regexp.MustCompile(`\{"(\w+)", 0, "IBVERBS_1.0"`).FindAllStringSubmatch(string(shim), -1) {
						versions["IBVERBS_1.0"] = append(versions["IBVERBS_1.0"], f[1])
						source += fmt.Sprintf("int %s(void) { return -1; }\n", f[1])
					}
					source += none
					if l.name == "no module" {
						source = strings.Replace(source, "*n = 0; return list;", "errno = ENOSYS; return 0;", 1)
					}
				}
				script := ""
				for version, names := range versions {
					script += fmt.Sprintf("%s { global: %s; };\n", version, strings.Join(names, "; "))
				}
				require.NoError(t, os.WriteFile(filepath.Join(dir, "source.c"), []byte(source), 0o644))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "versions"), []byte(script), 0o644))
				output, err := exec.Command(gcc, "-shared", "-fPIC", "-o", path, "-Wl,-soname,"+library,
					"-Wl,--version-script="+filepath.Join(dir, "versions"), filepath.Join(dir, "source.c")).CombinedOutput()
				require.NoError(t, err, "%s", output)
			}
			child := exec.Command(os.Args[0], "-test.run", "^TestLibraries$", "-test.v")
			child.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, libraryVariable+"="+l.want)
			output, err := child.CombinedOutput()
			require.NoError(t, err, "%s", output)
			assert.Contains(t, string(output), "--- PASS: TestLibraries")
			t.Logf("%s", output)
		})
	}
}
