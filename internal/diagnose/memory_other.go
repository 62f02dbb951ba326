//go:build !linux

package diagnose

import "errors"

func memoryNeeds(string, func(string) string) []Need { return nil }

func sharesMemory() error { return errors.New("not for this system") }
