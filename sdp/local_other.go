//go:build !linux

package sdp

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/gosdp/gosdp/internal/handshake"
)

const haveSHM = false

type policy struct{}

func policyFor(string, []int) policy { return policy{} }

func checkDirectory(string) error { return errors.ErrUnsupported }

func (s *settings) onHost(net.Conn, bool) *Conn { return nil }

func (s *settings) inherit(net.Conn) *Conn { return nil }

func (s *settings) meet(context.Context, net.Conn, time.Duration) (*Conn, error) { return nil, nil }

func (s *settings) meeting(net.Conn) handshake.Meeting { return nil }

func relieve(context.Context, error) bool { return false }
