package parity

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// httpScripts: package net/http calls Close with its mutexes held, so a slow Close blocks
// more than its own connection.
var httpScripts = []script{
	{name: "http client and a vanished server", stacks: vanishing, run: func(r *run) {
		server := r.startServer()
		client := &http.Client{Transport: &http.Transport{DialContext: r.DialContext}}
		r.note("first request", describe(get(context.Background(), client, server.url)))
		server.vanish()
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		err := bounded(func() error { return get(ctx, client, server.url) })
		r.must("Do fails when its context ends", err != nil && err != errHangs && ctx.Err() != nil)
	}},
	{name: "http client, idle connections to a vanished host", stacks: vanishing, run: func(r *run) {
		r.note("requests meanwhile", describe(r.besideVanished()))
	}},
	{name: "http server, Close with idle clients", run: func(r *run) {
		r.endServer(false, (*http.Server).Close)
	}},
	{name: "http server, Close with vanished clients", stacks: vanishing, run: func(r *run) {
		r.endServer(true, (*http.Server).Close)
	}},
	{name: "http server, Shutdown with vanished clients", stacks: vanishing, run: func(r *run) {
		r.endServer(true, func(s *http.Server) error { return s.Shutdown(context.Background()) })
	}},
}

// besideVanished makes requests to a healthy host while the same Transport closes idle
// connections to a vanished host.
func (r *run) besideVanished() (err error) {
	const idle = 3
	healthy, vanished := r.startServer(), r.startServer()
	var closed atomic.Int64
	client := &http.Client{Transport: &http.Transport{
		IdleConnTimeout:     500 * time.Millisecond,
		MaxIdleConnsPerHost: idle,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := r.DialContext(ctx, network, address)
			if err == nil && address == vanished.address {
				c = &countedConn{Conn: c, closed: &closed}
			}
			return c, err
		},
	}}
	check(get(context.Background(), client, healthy.url))
	var requests sync.WaitGroup
	for range idle {
		requests.Go(func() { check(get(context.Background(), client, fmt.Sprint(vanished.url, "?together=", idle))) })
	}
	requests.Wait()
	vanished.vanish()
	// The Transport's timers close them.
	if !eventually(func() bool {
		err = bounded(func() error { return get(context.Background(), client, healthy.url) })
		return err != nil || closed.Load() == idle
	}) {
		return errors.New("Close of an idle connection does not return")
	}
	return err
}

// endServer ends a server that has 1,000 idle clients. If third is set, each third client has
// vanished.
func (r *run) endServer(third bool, end func(*http.Server) error) {
	clients := 1000
	if r.short {
		clients = 100
	}
	server := r.startServer()
	var healthy, vanished []conn
	for i := range clients {
		c, err := r.Dial(server.address)
		check(err)
		check(c.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: here\r\n\r\n")
		check(err)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		check(err)
		_, err = io.Copy(io.Discard, answer.Body)
		check(err)
		if third && i%3 == 0 {
			vanish(c)
			vanished = append(vanished, c)
		} else {
			healthy = append(healthy, c)
		}
	}
	if !eventually(func() bool { return server.count(http.StateIdle) == clients }) {
		panic("the clients are not idle")
	}
	r.note("the call returns", timed(func() error { return end(server.Server) }))
	ends := map[string]int{}
	for _, c := range healthy {
		check(c.SetDeadline(time.Now().Add(patience)))
		saw := describe(readByte(c))
		if ends[saw]++; saw != "EOF" {
			break // the others would take as long
		}
	}
	r.note("the clients that have not vanished read", fmt.Sprint(ends))
	runtime.KeepAlive(vanished) // garbage collection would close them
}

// get makes a request and reads the response.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	check(err)
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// countedConn counts calls of Close.
type countedConn struct {
	net.Conn
	closed *atomic.Int64
}

func (c *countedConn) Close() error {
	defer c.closed.Add(1)
	return c.Conn.Close()
}

// server is an HTTP server that records its connections.
type server struct {
	*http.Server
	address, url string

	mu       sync.Mutex
	together int // requests waiting for others
	all      chan struct{}
	conns    map[net.Conn]http.ConnState
}

// startServer starts a server. It answers a request with ?together=N only when N of them have
// arrived, and others at once.
func (r *run) startServer() *server {
	ln, err := r.Listen()
	check(err)
	address := ln.Addr().String()
	s := &server{
		address: address, url: "http://" + address + "/",
		all: make(chan struct{}), conns: map[net.Conn]http.ConnState{},
	}
	s.Server = &http.Server{Handler: s, ConnState: s.changed}
	go s.Serve(ln)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if n := request.FormValue("together"); n != "" {
		s.mu.Lock()
		if s.together++; fmt.Sprint(s.together) == n {
			close(s.all)
		}
		s.mu.Unlock()
		<-s.all
	}
	io.WriteString(w, "hello")
}

func (s *server) changed(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = state
}

// count returns how many connections are in the given state.
func (s *server) count(state http.ConnState) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, is := range s.conns {
		if is == state {
			n++
		}
	}
	return n
}

// vanish makes the server's host vanish.
func (s *server) vanish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		vanish(c.(syscall.Conn))
	}
}
