package local

import (
	"context"
	"errors"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/stream"
	"github.com/gosdp/gosdp/internal/timing"
	"golang.org/x/sys/unix"
)

// Relieve makes connections come home if the process has no descriptors left, and reports whether it has some now. Over TCP
// each connection would have one, and in shared memory it has two.
func Relieve(ctx context.Context, err error) bool {
	if !errors.Is(err, unix.EMFILE) || bubble.Inside() {
		return false
	}
	before := stream.Sharing()
	if before == 0 { // segments of earlier connections may be kept
		return stream.LeaveAll(errDescriptors) > 0
	}
	for pause := time.Millisecond; pause < timing.Home; pause *= 2 { // the peers' part may take them a visit
		stream.LeaveAll(errDescriptors)
		if stream.Sharing() < before {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
	return false
}

var errDescriptors = errors.New("process has no file descriptors left; raise RLIMIT_NOFILE")
