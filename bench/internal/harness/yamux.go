package harness

import (
	"context"
	"io"
	"net"
	"sync"

	"github.com/hashicorp/yamux"
)

// overYamux returns yamux, which multiplexes streams over one TCP connection. This
// is the usual answer when connections are expensive.
func overYamux() Contender {
	var client struct {
		sync.Mutex
		session *yamux.Session
	}
	return Contender{
		Name:   "yamux",
		About:  "hashicorp/yamux: streams over one TCP connection, the usual answer when connections are expensive",
		Listen: listenYamux,
		Dial: func(ctx context.Context, address string, load Case) (net.Conn, error) {
			client.Lock()
			defer client.Unlock()
			if client.session == nil {
				conn, err := dial("tcp")(ctx, address, load)
				if err != nil {
					return nil, err
				}
				if client.session, err = yamux.Client(conn, yamuxConfig()); err != nil {
					return nil, err
				}
			}
			return client.session.Open()
		},
	}
}

func listenYamux(address string) (net.Listener, error) {
	below, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	listener := newSessionListener(below.Addr(), below.Close)
	go func() {
		for {
			conn, err := below.Accept()
			if err != nil {
				return
			}
			session, err := yamux.Server(conn, yamuxConfig())
			if err != nil {
				conn.Close()
				continue
			}
			go func() {
				for {
					stream, err := session.Accept()
					if err != nil || !listener.deliver(stream) {
						session.Close()
						return
					}
				}
			}()
		}
	}()
	return listener, nil
}

func yamuxConfig() *yamux.Config {
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	return config
}
