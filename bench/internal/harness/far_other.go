//go:build !linux

package harness

import (
	"errors"
	"os/exec"
)

func canLinkNamespaces() error { return errors.New("network namespaces need Linux") }

func unshare(*exec.Cmd) {}

func linkNamespaces(int, int) error { return canLinkNamespaces() }
