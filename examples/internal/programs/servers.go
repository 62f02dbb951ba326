package programs

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// portTries is the number of ports at which a server is tried. Another program may take
// a free port before the server listens at it.
const portTries = 5

// Postgres starts a PostgreSQL server with an empty cluster and returns its address.
// The superuser is postgres, without a password.
func Postgres(t testing.TB) string { return PostgresAt(t, "127.0.0.1") }

// PostgresAt is Postgres at another address of this host.
func PostgresAt(t testing.TB, host string) string {
	t.Helper()
	initdb, postgres := Need(t, "initdb"), Need(t, "postgres")
	dir, err := os.MkdirTemp("", "postgres") // t.TempDir is not accessible to other users
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		require.NoError(t, unprivileged(cmd, dir))
		return cmd
	}
	out, err := command(initdb, "-D", dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync").CombinedOutput()
	require.NoError(t, err, "%s", out)
	trusting := []byte("local all all trust\nhost all all all trust\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pg_hba.conf"), trusting, 0o600))
	return server(t, host, func(port string) *exec.Cmd {
		return command(postgres, "-D", dir, "-h", host, "-p", port, "-F",
			"-c", "unix_socket_directories=", "-c", "shared_buffers=32MB", "-c", "max_wal_size=128MB")
	})
}

// Redis starts an empty Redis server without persistence and returns its address.
func Redis(t testing.TB) string { return RedisAt(t, "127.0.0.1") }

// RedisAt is Redis at another address of this host, where it trusts every client.
func RedisAt(t testing.TB, host string) string {
	t.Helper()
	redis := Need(t, "redis-server")
	return server(t, host, func(port string) *exec.Cmd {
		return exec.Command(redis, "--bind", host, "--port", port, "--protected-mode", "no", "--save", "", "--dir", os.TempDir())
	})
}

// server starts a server at a free port of the host and returns its address when the server
// is ready. Every server used here says so with the same phrase.
func server(t testing.TB, host string, command func(port string) *exec.Cmd) string {
	t.Helper()
	var err error
	for range portTries {
		address := freeAddress(t, host)
		_, port, _ := net.SplitHostPort(address)
		if _, err = Start(t, command(port), "to accept connections"); err == nil {
			return address
		}
	}
	require.NoError(t, err)
	return ""
}

// RefusedAddress returns an address that refuses connections while the test runs. It is
// in use as the local address of a connection.
func RefusedAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}

// FreeAddress returns an address at which nothing listens at present.
func FreeAddress(t testing.TB) string { return freeAddress(t, "127.0.0.1") }

func freeAddress(t testing.TB, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
