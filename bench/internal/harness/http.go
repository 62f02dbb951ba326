package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// sizeHeader is the size of the response that the client wants, countHeader the
// number of the message in it.
const (
	sizeHeader  = "X-Size"
	countHeader = "X-Count"
)

// serveHTTP answers requests with messages.
func serveHTTP(listener net.Listener) error {
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.Atoi(r.Header.Get(sizeHeader))
		count, err2 := strconv.Atoi(r.Header.Get(countHeader))
		if err := errors.Join(err, err2); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body := make([]byte, size)
		fill(body, count)
		w.Write(body)
	}))
}

// requests makes GET requests on kept-alive connections.
type requests struct {
	to     target
	pool   pool
	client *http.Client
	size   int
	conns  int
}

func openHTTP(_ context.Context, to target, c Case) (load, error) {
	r := &requests{to: to, size: c.Size, conns: c.Conns}
	r.client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return r.pool.add(to.dial(ctx))
		},
		MaxConnsPerHost:     c.Conns,
		MaxIdleConnsPerHost: c.Conns,
		DisableCompression:  true,
	}}
	return r, nil
}

func (r *requests) prepare() error {
	if !r.to.Moves {
		return nil
	}
	return r.pool.settle(r.run, 10*r.conns)
}

func (r *requests) run(n int, times *times) error {
	return split(n, r.conns, times, func(_, n int, timer *timer) error {
		body := make([]byte, r.size)
		timer.start()
		for k := range n {
			if err := r.get(k, body); err != nil {
				return err
			}
			timer.lap()
		}
		return nil
	})
}

// get makes one request, reads the response into body, and checks it.
func (r *requests) get(k int, body []byte) error {
	request, err := http.NewRequest(http.MethodGet, "http://bench/", nil)
	if err != nil {
		return err
	}
	request.Header.Set(sizeHeader, strconv.Itoa(r.size))
	request.Header.Set(countHeader, strconv.Itoa(k))
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ContentLength != int64(r.size) {
		return fmt.Errorf("unexpected HTTP response: %s, %d bytes", response.Status, response.ContentLength)
	}
	if _, err := io.ReadFull(response.Body, body); err != nil {
		return err
	}
	if !intact(body, k*r.size, r.size) {
		return errWrongData
	}
	// The connection can be reused only after the body has been read to its end.
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
