package policy

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/gosdp/gosdp/internal/events"
)

// directory returns the directory in which programs of different network namespaces meet, or "" if there
// is none. It fails if what the program or the environment says makes no sense. A directory that cannot be used is
// reported, and is no failure.
func (o *Options) directory() (string, error) {
	path, source := Getenv(shmDirVariable), shmDirVariable
	log := o.logger()
	if o != nil && o.ShmDir != "" {
		path, source = o.ShmDir, "Config.ShmDir"
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
			events.Process.Complain(log, source, "sdp: shm directory unusable, ignored", err)
		} else {
			events.Process.Log(log, slog.LevelWarn, err.Error(), "sdp: shm directory unusable, ignored", "error", err)
		}
		return "", nil
	}
	return path, nil
}
