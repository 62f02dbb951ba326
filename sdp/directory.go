package sdp

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/wire"
)

// meeting is the part of devices that comes from Config.ShmDir and Config.Services.
type meeting struct {
	dir      *shmdir.Dir // nil: there is none
	unmet    error       // why the one that was named is not used; nil: it is, or none was named
	services []netip.Prefix
}

// meeting opens the directory that the program or the environment names. It fails if what they say
// makes no sense. A directory that cannot be used is no failure.
func (c *Config) meeting() (m meeting, err error) {
	if m.services, err = prefixesOf(servicesVariable); err != nil {
		return meeting{}, err
	}
	path, source := getenv(shmDirVariable), shmDirVariable
	if c != nil && c.Services != nil {
		m.services = c.Services
	}
	if c != nil && c.ShmDir != "" {
		path, source = c.ShmDir, "Config.ShmDir"
	}
	if path == "" {
		return m, nil
	}
	if !filepath.IsAbs(path) {
		return meeting{}, fmt.Errorf("%s=%s: not an absolute path", source, path)
	}
	if m.dir, err = shmdir.Open(path); err != nil {
		m.unmet = fmt.Errorf("shm directory %s: %w", path, err)
		if c != nil {
			events.Process.Log(c.Logger, slog.LevelWarn, m.unmet.Error(),
				"sdp: shm directory unusable, ignored", "reason", m.unmet)
		}
	}
	return m, nil
}

// meets reports whether programs of other network namespaces can be met.
func (d *devices) meets() bool { return d.dir != nil && slices.Contains(d.usable, wire.DeviceSHM) }
