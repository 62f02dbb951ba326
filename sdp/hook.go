package sdp

import (
	"context"

	"github.com/gosdp/gosdp/sdp/stats"
)

// WithDialHook returns a context for [Dialer.DialContext], which calls hook before it returns. hook must not block.
// A hook that ctx has already is called too, after the new one.
func WithDialHook(ctx context.Context, hook func(stats.Dial)) context.Context {
	outer := dialHook(ctx)
	switch {
	case hook == nil:
		return ctx
	case outer != nil:
		inner := hook
		hook = func(d stats.Dial) {
			inner(d)
			outer(d)
		}
	}
	return context.WithValue(ctx, dialHookKey{}, hook)
}

type dialHookKey struct{}

// dialHook returns the hook of a context; nil: it has none.
func dialHook(ctx context.Context) func(stats.Dial) {
	hook, _ := ctx.Value(dialHookKey{}).(func(stats.Dial))
	return hook
}
