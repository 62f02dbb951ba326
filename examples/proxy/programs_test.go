package proxy_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/programs"
)

// TestCurlFetchesAGigabyte has curl fetch 1 GB from a plain HTTP server.
func TestCurlFetchesAGigabyte(t *testing.T) {
	curl := programs.Need(t, "curl")
	const size = 1 << 30
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		writePattern(w, size)
	}))
	defer server.Close()
	wanted := sha256.New()
	require.NoError(t, writePattern(wanted, size))

	start := time.Now()
	fetch := exec.CommandContext(t.Context(), curl, "--silent", "--show-error", "--fail", "--noproxy", "*",
		"--max-time", "120", "http://"+across(t, server.Listener.Addr().String()))
	stdout, err := fetch.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, fetch.Start())
	got := sha256.New()
	n, err := io.Copy(got, stdout)
	require.NoError(t, err)
	require.NoError(t, fetch.Wait())
	require.EqualValues(t, size, n)
	require.Equal(t, hex.EncodeToString(wanted.Sum(nil)), hex.EncodeToString(got.Sum(nil)))
	t.Logf("%.1f s, %.0f MB/s", time.Since(start).Seconds(), size/1e6/time.Since(start).Seconds())
}

// writePattern writes random blocks that are numbered, so that no two are equal
// and none can take the place of another.
func writePattern(w io.Writer, size int) error {
	block := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{'s', 'e', 'e', 'd'}).Read(block)
	for n := range size / len(block) {
		binary.LittleEndian.PutUint64(block, uint64(n))
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
	return nil
}

func TestPostgreSQL(t *testing.T) {
	for _, name := range []string{"psql", "pgbench"} {
		programs.Need(t, name)
	}
	host, port, err := net.SplitHostPort(across(t, programs.Postgres(t)))
	require.NoError(t, err)
	run := func(name string, args ...string) string {
		t.Helper()
		args = append([]string{"-h", host, "-p", port, "-U", "postgres"}, args...)
		return programs.Run(t, 2*time.Minute, name, args...)
	}
	psql := func(query string) string {
		t.Helper()
		return strings.TrimSpace(run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", query, "postgres"))
	}

	t.Run("psql", func(t *testing.T) {
		psql("create table numbers as select n, repeat('x', n % 1000) as text from generate_series(1, 100000) n")
		require.Equal(t, "5000050000", psql("select sum(n) from numbers"))
		// In order, since a scan of a large table may begin where another one is.
		var rows strings.Builder
		for n := 1; n <= 100_000; n++ {
			fmt.Fprintf(&rows, "%d\t%s\n", n, strings.Repeat("x", n%1000))
		}
		got := psql("copy (select * from numbers order by n) to stdout")
		require.True(t, strings.TrimSpace(rows.String()) == got, "%d bytes of rows differ", len(got))
	})
	t.Run("pgbench", func(t *testing.T) {
		run("pgbench", "-i", "-q", "-s", "1", "postgres")
		for _, protocol := range []string{"simple", "prepared"} {
			report := run("pgbench", "-c", "4", "-j", "2", "-T", "2", "-n", "-M", protocol, "postgres")
			require.Contains(t, report, "number of failed transactions: 0 ")
			t.Log(report)
		}
		// Every transaction is in the history and in the balances, once.
		require.Equal(t, "t", psql("select (select sum(delta) from pgbench_history) = (select sum(abalance) from pgbench_accounts)"))
	})
}

func TestRedis(t *testing.T) {
	programs.Need(t, "redis-cli")
	programs.Need(t, "redis-benchmark")
	host, port, err := net.SplitHostPort(across(t, programs.Redis(t)))
	require.NoError(t, err)
	run := func(name string, args ...string) string {
		t.Helper()
		return programs.Run(t, time.Minute, name, append([]string{"-h", host, "-p", port}, args...)...)
	}
	require.Equal(t, "PONG\n", run("redis-cli", "ping"))
	run("redis-cli", "set", "key", "value")
	require.Equal(t, "value\n", run("redis-cli", "get", "key"))
	t.Log(run("redis-benchmark", "-q", "-c", "20", "-n", "5000", "-P", "4", "-d", "1000", "-t", "set,get,lrange_100"))
}
