package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gosdp/gosdp/examples/internal/devices"
)

// result is the result of fetching the tree over one stack.
type result struct {
	devices    []string // that carried the connections; devices.Plain means none
	conns      int
	bytes      int64
	elapsed    time.Duration
	mismatches []error
}

// fetch gets every file from the server at address over conns persistent connections,
// and compares it.
func fetch(s stack, address string, files []file, conns int) result {
	dialer := devices.Recorder{Dial: s.dial}
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
	r.devices, r.conns = dialer.Used()
	return r
}

// fetchOne gets one file and returns the number of bytes received. It returns an error
// if the content differs from that on the disk.
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
		err = fmt.Errorf("received %d bytes that differ from the %d on disk", len(got), len(f.content))
	}
	return int64(len(got)), err
}
