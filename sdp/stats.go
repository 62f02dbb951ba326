package sdp

import (
	"io"

	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/sdp/stats"
)

// Stats returns the totals of this process. In a program that "sdp go" has built, they do not include
// package net's connections (docs/adoption.md). It is safe for concurrent use.
func Stats() stats.Totals { return observe.Totals() }

// Connections returns the open connections of this process, including those that are closing,
// ordered by ID. It is safe for concurrent use.
func Connections() []stats.OpenConn { return observe.Connections() }

// WriteStatus writes the state of this process's connections to w as one JSON object, as the
// status socket does (see [ServeStatus]). docs/operations.md lists its fields. If a later version of the library
// changes or removes one, and does not only add some, the field "version" changes. WriteStatus is safe for concurrent
// use.
func WriteStatus(w io.Writer) error { return observe.WriteStatus(w) }

// ServeStatus lets "sdp stat" and "sdp top" show the connections of this process, until stop is
// called. It serves their state on a socket in a directory that only the process's user and root
// can enter, and fails if it cannot make that directory, or finds another one there. It may be called
// again, and concurrently; the socket exists until every stop was called. SDP_STATUS=1 in the
// environment has the same effect, from the first Dial or Listen.
func ServeStatus() (stop func() error, err error) { return observe.ServeStatus() }

// SetupStats returns statistics about the set-up of connections in this process. It is safe
// for concurrent use.
func SetupStats() stats.Setups { return observe.Setups() }
