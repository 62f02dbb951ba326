package sdp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/localpeer"
)

func bindToLoopback(fd uintptr) error { return unix.BindToDevice(int(fd), "lo") }

// TestUnixAnnouncedByAnother process is no reason to send a Request to a server.
func TestUnixAnnouncedByAnother(t *testing.T) {
	at := &net.UnixAddr{Net: "unix", Name: filepath.Join(t.TempDir(), "s")}
	ln, err := net.ListenUnix("unix", at)
	require.NoError(t, err)
	defer ln.Close()
	other := peerCommand("announce " + at.Name)
	other.Stderr = os.Stderr
	stdin, err := other.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	out, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	defer finish(other)
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "announced\n", said)
	require.NotZero(t, localpeer.UnixAnnouncer(at))

	c, err := Dial("unix", at.Name)
	require.NoError(t, err)
	require.IsType(t, (*net.UnixConn)(nil), c)
	_, err = c.Write([]byte("mine"))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	for _, want := range []string{"", "mine"} { // the first connection had a name that is not the program's
		s, err := ln.Accept()
		require.NoError(t, err)
		got, err := io.ReadAll(s)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
		s.Close()
	}
}

// beAnnouncer announces a Unix socket that is another's, until its standard input ends.
func beAnnouncer(name string) {
	a, err := localpeer.AnnounceUnix(&net.UnixAddr{Net: "unix", Name: name})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("announced")
	io.Copy(io.Discard, os.Stdin)
	a.Close()
	os.Exit(0)
}
