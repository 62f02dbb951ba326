package sdp

import (
	"bytes"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
)

func TestMeetingDirectory(t *testing.T) {
	t.Setenv(shmDirVariable, "")
	var text bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&text, nil))

	m, err := new(Config).meeting()
	require.NoError(t, err)
	assert.Nil(t, m.dir)
	assert.NoError(t, m.unmet)

	t.Setenv(shmDirVariable, "run/sdp")
	_, err = new(Config).meeting()
	assert.EqualError(t, err, "SDP_SHM_DIR=run/sdp: not an absolute path")
	_, err = Dial("tcp", "127.0.0.1:1")
	assert.ErrorContains(t, err, "not an absolute path")

	missing := t.TempDir() + "/none"
	t.Setenv(shmDirVariable, missing)
	for range 3 {
		m, err = (&Config{Logger: logger}).meeting()
		require.NoError(t, err)
		assert.Nil(t, m.dir)
		assert.ErrorContains(t, m.unmet, missing)
	}
	assert.Equal(t, 1, strings.Count(text.String(), "shm directory unusable"), "it is reported once")

	if runtime.GOOS == "linux" {
		good := t.TempDir()
		m, err = (&Config{ShmDir: good, Logger: logger}).meeting()
		require.NoError(t, err)
		require.NoError(t, m.unmet)
		assert.Equal(t, good, m.dir.Path(), "the program goes before the environment")
	}

	t.Setenv(servicesVariable, "10.96.0.0/12, fd00::1")
	m, err = (&Config{ShmDir: t.TempDir()}).meeting()
	require.NoError(t, err)
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00::1/128")}, m.services)
	m, err = (&Config{ShmDir: t.TempDir(), Services: []netip.Prefix{}}).meeting()
	require.NoError(t, err)
	assert.Empty(t, m.services)
	t.Setenv(servicesVariable, "10.96.0.0/12,kubernetes")
	_, err = new(Config).meeting()
	assert.EqualError(t, err, `SDP_SERVICES=10.96.0.0/12,kubernetes: "kubernetes" is neither an address nor a prefix`)
}

// TestDirectoryReachesOnlyListedHosts: a directory makes shm reach addresses elsewhere, of which
// those that Probe names may be asked.
func TestDirectoryReachesOnlyListedHosts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("missing: Linux, for shm")
	}
	local, remote := netip.MustParseAddr("10.211.0.1"), netip.MustParseAddr("10.96.0.10")
	m, err := (&Config{ShmDir: t.TempDir()}).meeting()
	require.NoError(t, err)
	list := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	for name, v := range map[string]struct {
		devices
		asks bool
	}{
		"listed":       {devices{meeting: m, probe: list, usable: []wire.Device{wire.DeviceSHM}}, true},
		"not listed":   {devices{meeting: m, usable: []wire.Device{wire.DeviceSHM}}, false},
		"no shm":       {devices{meeting: m, probe: list, usable: []wire.Device{wire.DeviceVerbs}}, false},
		"no directory": {devices{probe: list, usable: []wire.Device{wire.DeviceSHM}}, false},
	} {
		assert.Equal(t, v.asks, v.mayAsk(local, remote), name)
	}
}
