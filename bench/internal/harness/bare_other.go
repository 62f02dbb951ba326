//go:build !linux

package harness

import (
	"context"
	"errors"
	"net"
	"runtime"
)

// bareRings returns why there are no bare rings here.
func bareRings() error { return errors.ErrUnsupported }

func yieldProcessor() { runtime.Gosched() }

func listenBare(string) (net.Listener, error) { return nil, errors.ErrUnsupported }

func dialBare(context.Context, string, Case) (net.Conn, error) { return nil, errors.ErrUnsupported }
