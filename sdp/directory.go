package sdp

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/observe"
)

// directory returns the directory in which programs of different network namespaces meet, or "" if there
// is none. It fails if what the program or the environment says makes no sense. A directory that cannot be used is
// reported, and is no failure.
func (c *Config) directory() (string, error) {
	path, source := getenv(shmDirVariable), shmDirVariable
	var log *slog.Logger
	if c != nil {
		log = c.Logger
	}
	if c != nil && c.ShmDir != "" {
		path, source = c.ShmDir, "Config.ShmDir"
	}
	if path == "" {
		return "", nil
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%s=%s: not an absolute path", source, path)
	}
	if err := checkDirectory(path); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
		if source == shmDirVariable {
			observe.Complain(log, source, "sdp: shm directory unusable, ignored", err)
		} else {
			events.Process.Log(log, slog.LevelWarn, err.Error(), "sdp: shm directory unusable, ignored", "error", err)
		}
		return "", nil
	}
	return path, nil
}
