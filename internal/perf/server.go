package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/sdp"
)

const (
	// maxClients limits the concurrent measurements. Further clients are closed.
	maxClients = 64
	// maxMemory limits the blocks of all clients together, because each client names the size
	// of its own.
	maxMemory = 8 * MaxSize
)

// memory is what the blocks of clients may take.
type memory struct{ used atomic.Int64 }

func (m *memory) take(size int) error {
	if m.used.Add(int64(size)) > maxMemory {
		m.used.Add(-int64(size))
		return fmt.Errorf("block size %d: buffers of all clients would exceed %d MB", size, maxMemory>>20)
	}
	return nil
}

func (m *memory) release(size int) { m.used.Add(-int64(size)) }

// Listen listens for clients over TCP and over every device, on one port.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	lc := sdp.ListenConfig{Config: &sdp.Config{
		Devices: devices(),
		// Clients of TCP send first too, so that waiting for their first bytes costs nothing.
		Probe: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	}}
	return lc.Listen(ctx, "tcp", address)
}

// Serve serves clients until the listener is closed, and then closes their connections. It calls
// report with each measurement that has ended.
func Serve(ln net.Listener, report func(c net.Conn, kind byte, bytes int64, err error)) error {
	var all sync.WaitGroup
	defer all.Wait()
	serving, end := context.WithCancel(context.Background())
	defer end()
	places := make(chan struct{}, maxClients)
	var blocks memory
	for {
		c, err := ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil: // the process has no descriptor left
			time.Sleep(100 * time.Millisecond)
			continue
		}
		select {
		case places <- struct{}{}:
			all.Go(func() {
				defer func() { <-places }()
				defer c.Close()
				defer context.AfterFunc(serving, func() { c.Close() })()
				kind, n, err := serve(c, &blocks)
				report(c, kind, n, err)
			})
		default:
			c.Close()
		}
	}
}

// serve does what one client asks for, and returns how many bytes it has carried.
func serve(c net.Conn, blocks *memory) (kind byte, bytes int64, err error) {
	if err := c.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return 0, 0, err
	}
	kind, size, err := readRequest(c)
	if err != nil {
		return 0, 0, err
	}
	if err := c.SetDeadline(time.Now().Add(MaxTime)); err != nil {
		return kind, 0, err
	}
	if err := blocks.take(size); err != nil {
		return kind, 0, err
	}
	defer blocks.release(size)
	b := make([]byte, size)
	switch kind {
	case Echo:
		for {
			if _, err := io.ReadFull(c, b); err != nil {
				return kind, bytes, ended(err)
			}
			if _, err := c.Write(b); err != nil {
				return kind, bytes, err
			}
			bytes += int64(size)
		}
	case Upload:
		for {
			n, err := c.Read(b)
			if bytes += int64(n); err == io.EOF {
				_, err = c.Write(binary.BigEndian.AppendUint64(nil, uint64(bytes)))
				return kind, bytes, err
			} else if err != nil {
				return kind, bytes, err
			}
		}
	}
	fill(b)
	for {
		if _, err := c.Write(b); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return kind, bytes, err
			}
			return kind, bytes, nil // the client has seen enough
		}
		bytes += int64(size)
	}
}

// ended returns nil if the error is the end of a stream.
func ended(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// fill writes to every page, because copying from pages that were never written is too fast.
func fill(b []byte) {
	for i := range b {
		b[i] = byte(i)
	}
}
