package policy

import "github.com/gosdp/gosdp/internal/meeting"

// HaveSHM says that this system can share memory between the ends of a connection.
const HaveSHM = true

// checkDirectory returns why containers cannot meet in a directory.
func checkDirectory(path string) error { return meeting.CheckDir(path) }
