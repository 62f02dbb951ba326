package sdp

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"

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
		if c != nil && c.Logger != nil && unusable.first(m.unmet.Error()) {
			c.Logger.Warn("sdp: programs of other containers are not met", "reason", m.unmet)
		}
	}
	return m, nil
}

// meets reports whether programs of other network namespaces can be met.
func (d *devices) meets() bool { return d.dir != nil && slices.Contains(d.usable, wire.DeviceSHM) }

// reports remembers what was reported.
type reports struct {
	mu   sync.Mutex
	said map[string]bool
}

// unusable has the reasons why directories could not be used.
var unusable reports

// first reports whether what was not reported before. It remembers a bounded number of texts,
// and returns false when it has that many.
func (o *reports) first(what string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.said[what] || len(o.said) >= 64 {
		return false
	}
	if o.said == nil {
		o.said = make(map[string]bool)
	}
	o.said[what] = true
	return true
}
