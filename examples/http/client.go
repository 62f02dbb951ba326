package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// result is what one stack has done with the tree.
type result struct {
	devices    []string // that carried it, plain where none did
	conns      int
	bytes      int64
	elapsed    time.Duration
	mismatches []error
}

// fetch gets every file from the server at address, over conns connections that
// are kept alive, and compares it.
func fetch(s stack, address string, files []file, conns int) result {
	dialer := recorder{stack: s}
	transport := &http.Transport{
		DialContext:         dialer.DialContext,
		MaxConnsPerHost:     conns,
		MaxIdleConnsPerHost: conns,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}

	var (
		r     result
		mu    sync.Mutex // guards r
		queue = make(chan file)
		group sync.WaitGroup
	)
	start := time.Now()
	for range conns {
		group.Go(func() {
			for f := range queue {
				n, err := fetchOne(client, address, f)
				mu.Lock()
				r.bytes += n
				if err != nil {
					r.mismatches = append(r.mismatches, fmt.Errorf("%s: %w", f.name, err))
				}
				mu.Unlock()
			}
		})
	}
	for _, f := range files {
		queue <- f
	}
	close(queue)
	group.Wait()
	r.elapsed = time.Since(start)
	r.devices, r.conns = dialer.summary()
	return r
}

// fetchOne gets one file, says how many bytes came, and reports any difference
// from the disk.
func fetchOne(client *http.Client, address string, f file) (int64, error) {
	u := url.URL{Scheme: "http", Host: address, Path: "/" + f.name}
	response, err := client.Get(u.String())
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
	case response.StatusCode != http.StatusOK:
		err = fmt.Errorf("status %s", response.Status)
	case !bytes.Equal(got, f.content):
		err = fmt.Errorf("%d bytes that are not the disk's %d", len(got), len(f.content))
	}
	return int64(len(got)), err
}

// A recorder dials for an http.Transport and notes the device of each
// connection.
type recorder struct {
	stack
	mu      sync.Mutex
	devices []string
}

// DialContext is what an http.Transport wants of its DialContext.
func (r *recorder) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := r.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices = append(r.devices, deviceOf(conn))
	return conn, nil
}

// summary tells which devices there were, each once, and how many connections.
func (r *recorder) summary() (devices []string, conns int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(r.devices))), len(r.devices)
}

// plain is the device of a connection that has none.
const plain = "tcp"

// deviceOf names the RDMA device that carries conn.
func deviceOf(conn net.Conn) string {
	if c, ok := conn.(interface{ Device() string }); ok {
		return c.Device()
	}
	return plain
}
