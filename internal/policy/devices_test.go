package policy

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

func TestDevices(t *testing.T) {
	iwarp := []wire.Device{wire.DeviceIWARP}
	for _, v := range []struct {
		name        string
		environment string
		program     []string
		shm         bool
		usable      []wire.Device
		why         string // of what is not usable
		err         string
	}{
		{"defaults", "", nil, true, iwarp, "verbs: not compiled into this program", ""},
		{"environment", "iwarp", nil, false, iwarp, "verbs: not in SDP_DEVICES=iwarp", ""},
		{"environment, with spaces", "verbs, iwarp", nil, false, iwarp, "verbs: not compiled into this program", ""},
		{"environment, shared memory too", "shm,iwarp", nil, true, iwarp, "verbs: not in SDP_DEVICES=shm,iwarp", ""},
		{"environment, a device that is not there", "verbs", nil, false, nil, "verbs: not compiled into this program; iwarp: not in SDP_DEVICES=verbs", ""},
		{"environment switches off", "tcp", nil, false, nil, "verbs: not in SDP_DEVICES=tcp; iwarp: not in SDP_DEVICES=tcp", ""},
		{"program goes before environment", "tcp", []string{"iwarp"}, false, iwarp, "verbs: not in Config.Devices", ""},
		{"program switches off", "iwarp", []string{"tcp"}, false, nil, "verbs: not in Config.Devices; iwarp: not in Config.Devices", ""},
		{"program lists none", "", []string{}, true, iwarp, "verbs: not compiled into this program", ""},
		{"program lists none, environment does", "iwarp", []string{}, false, iwarp, "verbs: not in SDP_DEVICES=iwarp", ""},
		{"program lists shared memory", "", []string{"shm"}, true, nil, "verbs: not in Config.Devices; iwarp: not in Config.Devices", ""},

		{"unknown in environment", "iwarp,ib0", nil, false, nil, "", `SDP_DEVICES=iwarp,ib0: unknown device "ib0"`},
		{"nothing between commas", "iwarp,", nil, false, nil, "", `SDP_DEVICES=iwarp,: unknown device ""`},
		{"twice", "iwarp,iwarp", nil, false, nil, "", `SDP_DEVICES=iwarp,iwarp: device "iwarp" is listed twice`},
		{"shared memory twice", "shm,iwarp,shm", nil, false, nil, "", `SDP_DEVICES=shm,iwarp,shm: device "shm" is listed twice`},
		{"tcp beside another", "iwarp,tcp", nil, false, nil, "", `SDP_DEVICES=iwarp,tcp: "tcp" disables SDP and cannot be combined with devices`},
		{"wrong in environment, though the program lists", "x", []string{"iwarp"}, false, nil, "", `SDP_DEVICES=x: unknown device "x"`},
		{"unknown in program", "", []string{"ib0"}, false, nil, "", `Config.Devices: unknown device "ib0"`},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(devicesVariable, v.environment)
			p, err := New(&Options{Devices: v.program}, TCP, true)
			if v.err != "" {
				require.EqualError(t, err, v.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, v.usable, p.Devices)
			assert.Equal(t, v.shm && HaveSHM, p.SHM)
			assert.Equal(t, !v.shm && v.usable == nil && !strings.Contains(v.environment, "verbs"), p.Off)
			assert.EqualError(t, p.Declined.Err(), "no RDMA device can be used: "+v.why)
		})
	}
}

// onHardware is a device for which this machine has no hardware.
type onHardware struct{ rdma.BaseDevice }

func (onHardware) Name() string { return "hardware" }
func (onHardware) Probe() error { return errAbsent }

func (onHardware) OnlyIfNamed(netip.Addr) error { return errAbsent }

var errAbsent = errors.New("no hardware")

// anywhere is a device that wants to be used.
type anywhere struct{ onHardware }

func (anywhere) OnlyIfNamed(netip.Addr) error { return nil }

// TestUnusableDeviceIsLogged unless the machine has no hardware for it and nobody has named it.
func TestUnusableDeviceIsLogged(t *testing.T) {
	for _, v := range []struct {
		device rdma.Device
		listed bool
		logged int
	}{
		{onHardware{}, false, 0},
		{onHardware{}, true, 1},
		{anywhere{}, false, 1},
	} {
		events.Process = events.Limiter{}
		var text bytes.Buffer
		p := Policy{Listed: v.listed, Logger: slog.New(slog.NewTextHandler(&text, nil))}
		for range 3 {
			p.noteUnusable(v.device, errAbsent)
		}
		assert.Equal(t, v.logged, strings.Count(text.String(), `level=INFO msg="sdp: RDMA device unusable on this machine" device=hardware reason="no hardware"`), "%+v", v)
	}
}

// TestDefaultDevices are those that gain something.
func TestDefaultDevices(t *testing.T) {
	t.Setenv(devicesVariable, "")
	p, err := New(nil, TCP, false)
	require.NoError(t, err)
	assert.Empty(t, p.Devices)
	assert.Equal(t, HaveSHM, p.SHM)
	assert.Contains(t, p.Declined.Err().Error(), "iwarp: slower than TCP")
	assert.Contains(t, p.Declined.Err().Error(), "verbs: ")
}
