//go:build !linux

package parity

var devices = []string{"iwarp"}

func linuxScripts() []script { return nil }

func exitRoles() map[string]func([]string) { return nil }
