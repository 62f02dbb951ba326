package sdp

import "context"

// contextError returns why ctx is done, as package net says it, and err if ctx is not done.
func contextError(ctx context.Context, err error) error {
	switch ctx.Err() {
	case nil:
		return err
	case context.DeadlineExceeded:
		return timeoutError{}
	}
	return canceledError{}
}

// timeoutError and canceledError are what package net makes of a context's errors.
type (
	timeoutError  struct{}
	canceledError struct{}
)

func (timeoutError) Error() string        { return "i/o timeout" }
func (timeoutError) Timeout() bool        { return true }
func (timeoutError) Temporary() bool      { return true }
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

func (canceledError) Error() string        { return "operation was canceled" }
func (canceledError) Is(target error) bool { return target == context.Canceled }
