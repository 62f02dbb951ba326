// This package is not part of the Go distribution. "sdp go" has added it.

// Package errors replaces package errors for the library inside the standard library. Its As needs
// no reflection.
package errors

import "errors"

// ErrUnsupported is that of the replaced package.
var ErrUnsupported = errors.ErrUnsupported

func New(text string) error     { return errors.New(text) }
func Is(err, target error) bool { return errors.Is(err, target) }
func Join(errs ...error) error  { return errors.Join(errs...) }

// As finds the first error in err's tree whose type is T, and sets target to it.
func As[T error](err error, target *T) bool {
	for err != nil {
		if e, ok := err.(T); ok {
			*target = e
			return true
		}
		switch x := err.(type) {
		case interface{ Unwrap() error }:
			err = x.Unwrap()
		case interface{ Unwrap() []error }:
			for _, e := range x.Unwrap() {
				if As(e, target) {
					return true
				}
			}
			return false
		default:
			return false
		}
	}
	return false
}
