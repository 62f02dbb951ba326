package adoption

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// install builds a program from the module proxy, as it is. The test is skipped if the
// module cannot be had. GOSDP_ADOPTION_BIN names a directory in which programs are kept; one that
// is there is not built again, so empty it after a change to the library.
func install(t *testing.T, pkg string) string {
	t.Helper()
	return kept(t, pkg, func(bin, file string) {
		downloaded(t, t.TempDir(), pkg, "install", "-n", pkg)
		run(t, t.TempDir(), env("GOBIN="+bin), sdp(t), "install", pkg)
	})
}

// build is install for a program whose module has replace directives, which "go install" refuses.
// It is built in a module that requires it.
func build(t *testing.T, pkg string) string {
	t.Helper()
	return kept(t, pkg, func(bin, file string) {
		dir := module(t, map[string]string{})
		downloaded(t, dir, pkg, "get", pkg)
		path, _, _ := strings.Cut(pkg, "@")
		downloaded(t, dir, pkg, "build", "-n", path)
		run(t, dir, env(), sdp(t), "go", "get", pkg)
		run(t, dir, env(), sdp(t), "build", "-o", file, path)
	})
}

// downloaded runs a command of plain go that downloads all that a program is built from, and
// skips the test if that fails.
func downloaded(t *testing.T, dir, pkg string, args ...string) {
	t.Helper()
	if out, err := try(t, dir, env(), "go", args...); err != nil {
		t.Skipf("missing: %s: %s", pkg, out)
	}
}

func kept(t *testing.T, pkg string, make func(bin, file string)) string {
	t.Helper()
	bin := os.Getenv("GOSDP_ADOPTION_BIN")
	if bin == "" {
		bin = t.TempDir()
	}
	path, _, _ := strings.Cut(pkg, "@")
	name := filepath.Base(path)
	if regexp.MustCompile(`^v[0-9]+$`).MatchString(name) {
		name = filepath.Base(filepath.Dir(path))
	}
	file := filepath.Join(bin, name)
	if _, err := os.Stat(file); err != nil {
		make(bin, file)
	}
	return file
}

// start runs a server until the test ends.
func start(t *testing.T, environ []string, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = environ, t.TempDir()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %s", filepath.Base(name), out.String())
		}
	})
}

// free returns an address of this host that nothing listens on.
func free(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

// await waits until something listens on an address.
func await(t *testing.T, address string) {
	t.Helper()
	require.Eventually(t, func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, 2*time.Minute, 50*time.Millisecond, "nothing listens on %s", address)
}

// each runs a test over shm and over TCP, with the same programs. It prints how many connections moved, as those
// do that live long enough, and the rates, which mean something on an idle machine only.
func each(t *testing.T, test func(t *testing.T, environ []string) (rate float64)) {
	rates := make(map[string]float64)
	for _, device := range []string{"shm", "tcp"} {
		t.Run(device, func(t *testing.T) {
			connections := newReport(t)
			rates[device] = test(t, env("SDP_DEVICES="+device, connections.env()))
			moved := connections.count(t, "accept", "shm")
			require.Positive(t, connections.count(t, "accept", "tcp"))
			require.Positive(t, connections.count(t, "dial", "tcp"))
			if device == "tcp" {
				require.Zero(t, moved)
			}
			t.Logf("%d accepted connections moved", moved)
		})
	}
	t.Logf("per second: shm %.0f, tcp %.0f", rates["shm"], rates["tcp"])
}

// limited returns a context that ends a command which hangs.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	return b
}

var perSecond = regexp.MustCompile(`([0-9][0-9,]*) msgs/sec`)

func TestNATS(t *testing.T) {
	want(t, "all")
	server := install(t, "github.com/nats-io/nats-server/v2@v2.15.2")
	client := install(t, "github.com/nats-io/natscli/nats@v0.5.1")
	each(t, func(t *testing.T, environ []string) float64 {
		address := free(t)
		_, port, _ := net.SplitHostPort(address)
		start(t, environ, server, "-a", "127.0.0.1", "-p", port)
		await(t, address)
		environ = append(environ, "HOME="+t.TempDir())
		url := "nats://" + address

		// Data: what a subscriber gets is what was published.
		data := fmt.Sprintf("%x", random(100_000))
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		sub := exec.CommandContext(ctx, client, "-s", url, "reply", "echo", "--echo", "--count", "1")
		sub.Env = environ
		require.NoError(t, sub.Start())
		var got string
		require.Eventually(t, func() bool {
			cmd := exec.CommandContext(ctx, client, "-s", url, "request", "echo", "--raw", "--timeout", "1m")
			cmd.Env, cmd.Stdin = environ, strings.NewReader(data)
			out, _ := cmd.Output()
			got = strings.TrimSpace(string(out))
			return got != ""
		}, 2*time.Minute, 200*time.Millisecond) // until there is a subscriber
		require.Equal(t, sha256.Sum256([]byte(data)), sha256.Sum256([]byte(got)), "%d bytes", len(got))
		sub.Wait()

		out := run(t, t.TempDir(), environ, client, "-s", url, "bench", "pub", "x", "--msgs", "3000000", "--size", "128", "--no-progress")
		return number(t, perSecond, out)
	})
}

// number returns a number in the output of a program.
func number(t *testing.T, pattern *regexp.Regexp, out string) float64 {
	t.Helper()
	m := pattern.FindStringSubmatch(out)
	require.NotNil(t, m, out)
	n, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
	require.NoError(t, err)
	return n
}

func TestGRPCurl(t *testing.T) {
	want(t, "all")
	server := install(t, "github.com/fullstorydev/grpcurl/internal/testing/cmd/testserver@v1.9.4")
	client := install(t, "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4")
	each(t, func(t *testing.T, environ []string) float64 {
		address := free(t)
		_, port, _ := net.SplitHostPort(address)
		start(t, environ, server, "-p", port)
		await(t, address)
		list := run(t, t.TempDir(), environ, client, "-plaintext", address, "list")
		require.Contains(t, list, "testing.TestService")
		payload := strings.Repeat("QUJD", 50_000) // base64
		began := time.Now()
		const calls = 10
		for range calls {
			cmd := exec.CommandContext(limited(t), client, "-plaintext", "-d", "@", address, "testing.TestService/UnaryCall")
			cmd.Env, cmd.Stdin = environ, strings.NewReader(`{"payload":{"body":"`+payload+`"}}`)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			require.Contains(t, string(out), payload)
		}
		return calls / time.Since(began).Seconds()
	})
}

func TestEtcd(t *testing.T) {
	want(t, "all")
	server := build(t, "go.etcd.io/etcd/server/v3@v3.6.8")
	client := build(t, "go.etcd.io/etcd/etcdctl/v3@v3.6.8")
	each(t, func(t *testing.T, environ []string) float64 {
		address, peers := free(t), free(t)
		start(t, environ, server, "--data-dir", t.TempDir(), "--unsafe-no-fsync",
			"--listen-client-urls", "http://"+address, "--advertise-client-urls", "http://"+address,
			"--listen-peer-urls", "http://"+peers, "--initial-advertise-peer-urls", "http://"+peers, "--initial-cluster", "default=http://"+peers)
		await(t, address)
		etcdctl := func(stdin string, args ...string) string {
			cmd := exec.CommandContext(limited(t), client, append([]string{"--endpoints", address}, args...)...)
			cmd.Env, cmd.Stdin = environ, strings.NewReader(stdin)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			return string(out)
		}
		value := fmt.Sprintf("%x", random(600_000))
		etcdctl(value, "put", "large")
		require.Equal(t, value, strings.TrimSpace(etcdctl("", "get", "large", "--print-value-only")))
		began := time.Now()
		const puts = 20
		for i := range puts {
			etcdctl("", "put", fmt.Sprint("key", i), fmt.Sprint("value", i))
		}
		return puts / time.Since(began).Seconds()
	})
}

// A reverse proxy between two programs that know nothing of SDP.
func TestCaddy(t *testing.T) {
	want(t, "all")
	caddy := install(t, "github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9")
	dir := module(t, map[string]string{"main.go": web})
	run(t, dir, env(), sdp(t), "build", "-o", "web", ".")
	program := filepath.Join(dir, "web")
	data := random(300_000)
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	file := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(file, data, 0o644))
	each(t, func(t *testing.T, environ []string) float64 {
		front := free(t)
		environ = append(environ, "HOME="+t.TempDir(), "XDG_DATA_HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
		behind := serve(t, environ, program, file)
		start(t, environ, caddy, "reverse-proxy", "--from", "http://"+front, "--to", behind)
		await(t, front)
		out := run(t, dir, environ, program, "get", "http://"+front+"/", "300")
		fields := strings.Fields(out)
		require.Equal(t, sum, fields[0])
		rate, err := strconv.ParseFloat(fields[1], 64)
		require.NoError(t, err)
		return rate
	})
}

// Prometheus scrapes a server that knows nothing of SDP, and is asked for what it has scraped.
func TestPrometheus(t *testing.T) {
	want(t, "all")
	prometheus := install(t, "github.com/prometheus/prometheus/cmd/prometheus@v0.316.0")
	dir := module(t, map[string]string{"main.go": web})
	run(t, dir, env(), sdp(t), "build", "-o", "web", ".")
	program := filepath.Join(dir, "web")
	const series = 500
	var metrics strings.Builder
	for i := range series {
		fmt.Fprintf(&metrics, "sdp_adoption{number=\"%d\"} %d\n", i, 1_000_000+i)
	}
	file := filepath.Join(t.TempDir(), "metrics.txt")
	require.NoError(t, os.WriteFile(file, []byte(metrics.String()), 0o644))
	each(t, func(t *testing.T, environ []string) float64 {
		target, address := serve(t, environ, program, file), free(t)
		config := filepath.Join(t.TempDir(), "prometheus.yml")
		require.NoError(t, os.WriteFile(config, []byte(`{"scrape_configs": [{"job_name": "web", "scrape_interval": "1s", "static_configs": [{"targets": ["`+target+`"]}]}]}`), 0o644))
		start(t, environ, prometheus, "--config.file="+config, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+address)
		await(t, address)

		var answer struct {
			Data struct {
				Result []struct {
					Metric struct{ Number string }
					Value  [2]any
				}
			}
		}
		var query string
		require.Eventually(t, func() bool {
			query = fmt.Sprintf("http://%s/api/v1/query?query=sdp_adoption&time=%d", address, time.Now().Unix())
			r, err := http.Get(query)
			if err != nil {
				return false
			}
			defer r.Body.Close()
			answer.Data.Result = nil
			return json.NewDecoder(r.Body).Decode(&answer) == nil && len(answer.Data.Result) == series
		}, 2*time.Minute, 100*time.Millisecond)
		for _, s := range answer.Data.Result {
			number, err := strconv.Atoi(s.Metric.Number)
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(1_000_000+number), s.Value[1])
		}
		out := run(t, dir, environ, program, "get", query, "500")
		rate, err := strconv.ParseFloat(strings.Fields(out)[1], 64)
		require.NoError(t, err)
		return rate
	})
}

// serve has the program web serve a file until the test ends. It returns its address.
func serve(t *testing.T, environ []string, program, file string) (address string) {
	t.Helper()
	cmd := exec.Command(program, "serve", file)
	cmd.Env = environ
	return startListening(t, cmd)
}

const web = `package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	if os.Args[1] == "serve" {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Println(ln.Addr())
		panic(http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.ServeFile(w, r, os.Args[2])
		})))
	}
	n, _ := strconv.Atoi(os.Args[3])
	sum, began := "", time.Now()
	for range n {
		r, err := http.Get(os.Args[2])
		if err != nil {
			panic(err)
		}
		h := sha256.New()
		if _, err := io.Copy(h, r.Body); err != nil {
			panic(err)
		}
		r.Body.Close()
		is := fmt.Sprintf("%x", h.Sum(nil))
		if sum != "" && is != sum {
			panic("the answers differ")
		}
		sum = is
	}
	fmt.Println(sum, float64(n)/time.Since(began).Seconds())
}
`
