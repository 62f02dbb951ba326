//go:build !linux

package harness

import (
	"errors"
	"os/exec"
)

func mayWire() error { return errors.New("needs Linux, for network namespaces") }

func unshare(*exec.Cmd) {}

func wire(int, int) error { return mayWire() }
