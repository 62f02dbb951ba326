//go:build !linux

package sdp

import (
	"context"
	"net"
	"time"

	"github.com/gosdp/gosdp/internal/handshake"
)

func (s *settings) onHost(net.Conn, bool) *Conn { return nil }

func (s *settings) inherit(net.Conn) *Conn { return nil }

func (s *settings) meet(context.Context, net.Conn, time.Duration) (*Conn, error) { return nil, nil }

func (s *settings) meeting(net.Conn) handshake.Meeting { return nil }
