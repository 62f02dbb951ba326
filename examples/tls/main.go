// Tls runs crypto/tls over RDMA: an HTTP/2 server that authenticates clients by
// certificates, and a client, in separate processes.
//
//	go run ./examples/tls
//
// The exit status is 1 if HTTP/2 was not negotiated, if the server saw the wrong client
// name, or if it served a client without a certificate.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gosdp/gosdp/examples/internal/certs"
	"github.com/gosdp/gosdp/examples/internal/devices"
	"github.com/gosdp/gosdp/examples/internal/process"
	"github.com/gosdp/gosdp/sdp"
)

// sdpDialer has the defaults of SDP.
var sdpDialer sdp.Dialer

func main() {
	server := flag.Bool("serve", false, "run as the server process (used internally)")
	flag.Parse()

	var err error
	if *server {
		err = serve()
	} else {
		err = both(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tls:", err)
		os.Exit(1)
	}
}

// clientName is the name in the client's certificate.
const clientName = "a client with a certificate"

// serve echoes requests over HTTP/2 and TLS. A response header names the client.
func serve() error {
	var id certs.Identity
	if err := process.Input(&id); err != nil {
		return err
	}
	config, err := id.Config()
	if err != nil {
		return err
	}
	server := &http.Server{
		TLSConfig: config,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Client", r.TLS.PeerCertificates[0].Subject.CommonName)
			io.Copy(w, r.Body)
		}),
		ErrorLog: log.New(io.Discard, "", 0), // one client is rejected on purpose
	}
	listener, err := sdp.Listen("tcp", "localhost:0") // the changed line; was net.Listen
	if err != nil {
		return err
	}
	process.Announce(listener.Addr(), func() { server.Close() })
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// both starts a server process and calls it.
func both(out io.Writer) error {
	server, client, err := certs.New(clientName)
	if err != nil {
		return err
	}
	config, err := client.Config()
	if err != nil {
		return err
	}
	address, stop, err := process.Start(server, "-serve")
	if err != nil {
		return err
	}
	err = callHTTP2(address, config, out)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(err, callWithoutCertificate(ctx, address, config, out), stop())
}

// callHTTP2 makes many concurrent requests on one connection.
func callHTTP2(address string, config *tls.Config, out io.Writer) error {
	dialer := devices.Recorder{Dial: sdpDialer.DialContext}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = dialer.DialContext // the added line
	transport.TLSClientConfig = config.Clone()
	transport.MaxConnsPerHost = 1
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}

	const requests, size = 16, 1 << 20
	errs := make([]error, requests)
	var group sync.WaitGroup
	for i := range requests {
		group.Go(func() { errs[i] = post(client, "https://"+address, size) })
	}
	group.Wait()
	used, conns := dialer.Used()
	fmt.Fprintf(out, "%d requests of %d bytes over HTTP/2 and TLS on %d connection over %s\n",
		requests, size, conns, strings.Join(used, ","))
	return errors.Join(errs...)
}

// post sends size bytes, and checks the response and the negotiated protocol.
func post(client *http.Client, url string, size int) error {
	sent := make([]byte, size)
	rand.Read(sent)
	response, err := client.Post(url, "application/octet-stream", bytes.NewReader(sent))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.TLS.NegotiatedProtocol != "h2" || response.ProtoMajor != 2:
		return fmt.Errorf("ALPN negotiated %q, response uses %s", response.TLS.NegotiatedProtocol, response.Proto)
	case response.Header.Get("Client") != clientName:
		return fmt.Errorf("server saw client %q", response.Header.Get("Client"))
	case !bytes.Equal(got, sent):
		return fmt.Errorf("received %d bytes that differ from the %d sent", len(got), len(sent))
	}
	return nil
}

// callWithoutCertificate shows that the server rejects a client without a certificate.
// It makes the TLS handshake itself instead of using http.Transport. ctx has a deadline,
// because a server that accepts the client waits for its request.
func callWithoutCertificate(ctx context.Context, address string, config *tls.Config, out io.Writer) error {
	config = config.Clone()
	config.Certificates = nil
	config.ServerName = "localhost"
	below, err := sdpDialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	conn := tls.Client(below, config)
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	if err = conn.HandshakeContext(ctx); err == nil { // with TLS 1.3 the alert arrives after the handshake
		_, err = conn.Read(make([]byte, 1))
	}
	var alert *net.OpError
	if !errors.As(err, &alert) || alert.Op != "remote error" {
		return fmt.Errorf("handshake without a certificate: unexpected result: %v", err)
	}
	fmt.Fprintf(out, "without a certificate over %s: %v\n", devices.Of(conn), alert)
	return nil
}
