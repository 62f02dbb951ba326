//go:build !linux

package local

import (
	"context"

	"github.com/gosdp/gosdp/internal/policy"
)

// Moves says when the connections of a Dial or a Listen move: never.
type Moves struct{}

// MovesFor returns what a policy says.
func MovesFor(*policy.Policy) Moves { return Moves{} }

// Relieve reports that there are no connections whose descriptors can be freed.
func Relieve(context.Context, error) bool { return false }
