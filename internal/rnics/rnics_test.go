package rnics

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree makes a sysfs in which a hardware device has the interfaces, and rxe0 has more.
func tree(t *testing.T, own, attached []string) string {
	t.Helper()
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for _, name := range own {
		write("devices/pci0/mlx/net/"+name+"/mtu", "")
	}
	for i, name := range attached {
		write("devices/pci0/mlx/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/"+string(rune('0'+i)), name+"\n")
	}
	write("devices/virtual/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "eth9\n")
	write("devices/pci0/mlx/infiniband/mlx5_0/node_type", "")
	class := filepath.Join(root, "class/infiniband")
	require.NoError(t, os.MkdirAll(class, 0o755))
	require.NoError(t, os.Symlink("../..", filepath.Join(root, "devices/pci0/mlx/infiniband/mlx5_0/device")))
	require.NoError(t, os.Symlink("../../devices/pci0/mlx/infiniband/mlx5_0", filepath.Join(class, "mlx5_0")))
	require.NoError(t, os.Symlink("../../devices/virtual/infiniband/rxe0", filepath.Join(class, "rxe0")))
	return root
}

func TestInterfaces(t *testing.T) {
	assert.Equal(t, []string{"bond0", "eth0", "eth0.5"}, interfaces(tree(t, []string{"eth0"}, []string{"eth0", "eth0.5", "bond0"})))
	assert.Empty(t, interfaces(t.TempDir()))
}

func TestNetworks(t *testing.T) {
	all, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 || i.Flags&net.FlagUp == 0 {
			continue
		}
		n := networks(tree(t, []string{i.Name}, nil))
		assert.Contains(t, n, netip.MustParsePrefix("127.0.0.1/8"))
		assert.True(t, Owns(n, netip.MustParseAddr("127.0.0.1")))
		assert.False(t, Owns(n, netip.MustParseAddr("127.0.0.2")))
		assert.True(t, Contain(n, netip.MustParseAddr("127.3.4.5")))
		assert.False(t, Contain(n, netip.MustParseAddr("192.0.2.1")))
		return
	}
	t.Skip("missing: a loopback interface")
}

// TestNetworksAreFresh: what was found is used for a second, and not if the clock was set back.
func TestNetworksAreFresh(t *testing.T) {
	synctest.Test(t, networksAreFresh) // time passes only where the test lets it
}

func networksAreFresh(t *testing.T) {
	old := []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}
	after := func(passed time.Duration) []netip.Prefix {
		found.Lock()
		found.networks, found.at = old, time.Now().Add(-passed)
		found.Unlock()
		return Networks()
	}
	t.Cleanup(func() { found.at = time.Time{} })
	real := networks(system)
	assert.Equal(t, real, after(time.Hour))
	assert.Equal(t, real, after(-time.Hour))
	assert.Equal(t, old, after(0))
	assert.Equal(t, old, after(freshTime-1))
	assert.Equal(t, real, after(freshTime+1))
	found.networks, found.at = old, time.Time{}
	assert.Equal(t, real, Networks(), "nothing was found yet")
}
