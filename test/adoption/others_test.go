package adoption

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// others are other projects whose own tests are run as those of the standard library are. known.json
// has their differences under the package's path.
var others = []struct {
	module, version string
	suite           suite
}{
	{"github.com/gorilla/websocket", "v1.5.3", suite{pkg: "github.com/gorilla/websocket"}},
	{"github.com/valyala/fasthttp", "v1.66.0", suite{pkg: "github.com/valyala/fasthttp", args: []string{"-short"}}},
	{"golang.org/x/net", "v0.62.0", suite{pkg: "golang.org/x/net/http2"}},
	{"golang.org/x/net", "v0.62.0", suite{pkg: "golang.org/x/net/http2/h2c"}},
	{"golang.org/x/net", "v0.62.0", suite{pkg: "golang.org/x/net/netutil"}},
	{"golang.org/x/net", "v0.62.0", suite{pkg: "golang.org/x/net/websocket"}},
	{"google.golang.org/grpc", "v1.85.0", suite{pkg: "google.golang.org/grpc", args: []string{"-short"}}},
	{"google.golang.org/grpc", "v1.85.0", suite{pkg: "google.golang.org/grpc/internal/transport"}},
	{"google.golang.org/grpc", "v1.85.0", suite{pkg: "google.golang.org/grpc/test", args: []string{"-skip", timedByGRPC}}},
}

// timedByGRPC is a test that requires pauses of 10 ms to take about as long.
const timedByGRPC = `^Test$/^RetryStats$`

func TestOtherProjects(t *testing.T) {
	want(t, "all")
	differences := known(t)
	here := strings.TrimSpace(run(t, t.TempDir(), env(), "go", "env", "GOVERSION"))
	for _, o := range others {
		t.Run(strings.ReplaceAll(o.suite.pkg, "/", "."), func(t *testing.T) {
			out, err := try(t, t.TempDir(), env(), "go", "mod", "download", o.module+"@"+o.version)
			if err != nil {
				t.Skipf("missing: %s %s: %s", o.module, o.version, out)
			}
			cache := strings.TrimSpace(run(t, t.TempDir(), env(), "go", "env", "GOMODCACHE"))
			o.suite.dir = filepath.Join(t.TempDir(), "module") // the original is read-only
			require.NoError(t, os.CopyFS(o.suite.dir, os.DirFS(filepath.Join(cache, o.module+"@"+o.version))))
			o.suite.compare(t, here, "GOTOOLCHAIN=local", differences)
		})
	}
}
