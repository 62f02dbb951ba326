package harness

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// overQUIC returns QUIC with one stream per connection. All connections share the
// client's UDP socket. Of all contenders only this one encrypts.
func overQUIC() Contender {
	transport := sync.OnceValues(udpTransport)
	return Contender{
		Name:   "quic",
		About:  "quic-go: one stream of a QUIC connection, over UDP, encrypted",
		Listen: listenQUIC,
		Dial: func(ctx context.Context, address string, _ Case) (net.Conn, error) {
			transport, err := transport()
			if err != nil {
				return nil, err
			}
			server, err := net.ResolveUDPAddr("udp", address)
			if err != nil {
				return nil, err
			}
			conn, err := transport.Dial(ctx, server, &tls.Config{
				InsecureSkipVerify: true, // the server makes a new certificate for each run
				NextProtos:         []string{quicProtocol},
			}, quicConfig())
			if err != nil {
				return nil, err
			}
			stream, err := conn.OpenStream()
			if err != nil {
				return nil, errors.Join(err, conn.CloseWithError(0, ""))
			}
			return quicConn{stream, conn}, nil
		},
	}
}

const quicProtocol = "gosdp-bench"

// quicConfig keeps idle connections open for longer than any run takes.
func quicConfig() *quic.Config { return &quic.Config{MaxIdleTimeout: time.Hour} }

func udpTransport() (*quic.Transport, error) {
	// Without this, every process would print the same warning.
	os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true")
	socket, err := net.ListenPacket("udp", loopback)
	if err != nil {
		return nil, err
	}
	return &quic.Transport{Conn: socket}, nil
}

func listenQUIC(string) (net.Listener, error) {
	certificate, err := selfSigned()
	if err != nil {
		return nil, err
	}
	transport, err := udpTransport()
	if err != nil {
		return nil, err
	}
	below, err := transport.Listen(&tls.Config{
		Certificates: []tls.Certificate{certificate},
		NextProtos:   []string{quicProtocol},
	}, quicConfig())
	if err != nil {
		return nil, errors.Join(err, transport.Close())
	}
	listener := newSessionListener(below.Addr(), transport.Close)
	go func() {
		for {
			conn, err := below.Accept(context.Background())
			if err != nil {
				return
			}
			go func() {
				stream, err := conn.AcceptStream(conn.Context())
				if err != nil {
					conn.CloseWithError(0, "")
					return
				}
				listener.deliver(quicConn{stream, conn})
			}()
		}
	}()
	return listener, nil
}

// quicConn is a QUIC connection with one stream.
type quicConn struct {
	*quic.Stream
	conn *quic.Conn
}

func (c quicConn) LocalAddr() net.Addr  { return c.conn.LocalAddr() }
func (c quicConn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// Read returns io.EOF when the peer has closed the connection.
func (c quicConn) Read(b []byte) (int, error) {
	n, err := c.Stream.Read(b)
	var closed *quic.ApplicationError
	if errors.As(err, &closed) && closed.Remote && closed.ErrorCode == 0 {
		err = io.EOF
	}
	return n, err
}

// Close closes the connection at once. Every load has had its data confirmed
// before it closes a connection.
func (c quicConn) Close() error { return c.conn.CloseWithError(0, "") }

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
