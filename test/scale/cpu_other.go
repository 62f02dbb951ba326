//go:build !unix

package main

import "time"

// processorTime is 0: not known.
func processorTime() time.Duration { return 0 }
