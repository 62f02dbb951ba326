//go:build !unix

package rules

import (
	"errors"
	"os"
)

const (
	nonblocking = 0
	noFollow    = 0
)

func owned(*os.File) error { return nil }

func sendSyslog(string) error { return errors.New("syslog is not supported on this system") }
