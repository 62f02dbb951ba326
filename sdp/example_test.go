package sdp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/gosdp/gosdp/sdp"
)

// serveEcho sends each client back what it sends.
func serveEcho(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			io.Copy(conn, conn)
		}()
	}
}

// Dial is used as net.Dial is. If the peer does not speak SDP the connection is a
// *net.TCPConn.
func ExampleDial() {
	ln, err := sdp.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	go serveEcho(ln)

	conn, err := sdp.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintln(conn, "hello")
	line, err := bufio.NewReader(conn).ReadString('\n')
	fmt.Print(line, err)
	// Output:
	// hello
	// <nil>
}

// A web server serves clients of SDP and of plain TCP.
func ExampleListen() {
	ln, err := sdp.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello")
	})}
	defer server.Close()
	go server.Serve(ln)

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // plain TCP
	response, err := client.Get("http://" + ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	fmt.Println(string(body), err)
	// Output: hello <nil>
}

// The connections of an http.Client are SDP where the server speaks it.
func ExampleDialer() {
	ln, err := sdp.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello")
	})}
	defer server.Close()
	go server.Serve(ln)

	dialer := &sdp.Dialer{NetDialer: &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}}
	transport := http.DefaultTransport.(*http.Transport).Clone() // keeps HTTP/2, proxies and time limits
	transport.DialContext = dialer.DialContext
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	response, err := client.Get("http://" + ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	fmt.Println(string(body), err)
	// Output: hello <nil>
}

// Client and Server are for programs that make or accept their connections themselves. Both
// ends have to call one of them.
func ExampleClient() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			conn, err = sdp.Server(context.Background(), conn, nil)
		}
		if err == nil {
			_, err = fmt.Fprint(conn, "hello")
			conn.Close()
		}
		served <- err
	}()

	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	c, err := sdp.Client(context.Background(), conn, nil)
	var not *sdp.NotSDPError
	if errors.As(err, &not) {
		log.Fatalf("the server does not speak SDP: %v", not)
	}
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	text, err := io.ReadAll(c)
	fmt.Println(string(text), err, <-served)
	// Output: hello <nil> <nil>
}

// Stats says what a connection is, and why it is not something better.
func ExampleConn_Stats() {
	config := &sdp.Config{Devices: []string{"iwarp"}, ZCopyThreshold: -1}
	ln, err := (&sdp.ListenConfig{Config: config}).Listen(context.Background(), "sdp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	go serveEcho(ln)

	conn, err := (&sdp.Dialer{Config: config}).Dial("sdp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, 1000)); err != nil {
		log.Fatal(err)
	}
	stats := conn.(*sdp.Conn).Stats()
	fmt.Println(stats.Device, stats.BcopySent.Messages, stats.BcopySent.Bytes)
	// Output: iwarp 1 1000
}
