//go:build !linux

package sdp

import "errors"

func beAnnouncer(string) {}

func bindToLoopback(uintptr) error { return errors.New("only Linux binds to devices by name") }
