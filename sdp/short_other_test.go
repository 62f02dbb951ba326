//go:build !linux

package sdp

func shortFiles() {}
