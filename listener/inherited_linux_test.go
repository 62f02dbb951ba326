package listener

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/localpeer"
)

// listensVariable has this binary make the socket that it inherits listen, and end.
const listensVariable = "LISTENER_LISTENS"

func init() {
	if os.Getenv(listensVariable) == "" {
		return
	}
	if err := syscall.Listen(3, 8); err != nil {
		println(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// TestInheritedUnixSocket is not announced, because diallers take the process that made it listen
// for the server.
func TestInheritedUnixSocket(t *testing.T) {
	for _, inherited := range []bool{false, true} {
		at := &net.UnixAddr{Net: "unix", Name: filepath.Join(t.TempDir(), "s")}
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
		require.NoError(t, err)
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		require.NoError(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: at.Name}))
		if inherited {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), listensVariable+"=1", "GORACE=atexit_sleep_ms=0")
			cmd.ExtraFiles = []*os.File{f}
			cmd.Stderr = os.Stderr
			require.NoError(t, cmd.Run())
		} else {
			require.NoError(t, syscall.Listen(fd, 8))
		}
		ln, err := net.FileListener(f)
		require.NoError(t, err)
		l := New(ln, testConfig())
		defer l.Close()
		assert.Equal(t, !inherited, localpeer.UnixAnnouncer(at) != 0)
		c, err := net.Dial("unix", at.Name)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		accept(t, l)
	}
}
