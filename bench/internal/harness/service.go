package harness

import (
	"fmt"
	"net"
	"net/rpc"
	"os"
	"sync"
	"time"
)

// peerRole is the environment variable that makes a program the peer.
const peerRole = "GOSDP_BENCH_PEER"

// serviceName is what the measuring process calls the peer's service.
const serviceName = "Peer"

// PeerMain does the peer's work if that is what this process was started for,
// and then says true.
func PeerMain() bool {
	if os.Getenv(peerRole) == "" {
		return false
	}
	server := rpc.NewServer()
	if err := server.RegisterName(serviceName, new(service)); err != nil {
		panic(err) // its methods are not what net/rpc can call
	}
	server.ServeConn(pipes{os.Stdin, os.Stdout})
	return true
}

// service is what the measuring process can ask of its peer, by net/rpc.
type service struct {
	mu        sync.Mutex
	listeners map[string]net.Listener // by contender
}

// Listen listens over the named contender, the first time that it is asked, and
// says where.
func (s *service) Listen(contender string, address *string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	listener, ok := s.listeners[contender]
	if !ok {
		c, err := find(contender)
		if err != nil {
			return err
		}
		if listener, err = c.Listen(); err != nil {
			return err
		}
		if s.listeners == nil {
			s.listeners = make(map[string]net.Listener)
		}
		s.listeners[contender] = listener
		go serve(contender, listener)
	}
	*address = listener.Addr().String()
	return nil
}

// CPU says how much processor time this process has used.
func (s *service) CPU(_ struct{}, used *time.Duration) error {
	var err error
	*used, err = CPU()
	return err
}

// serve answers every link over listener for as long as the process lives.
func serve(contender string, listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			fmt.Fprintf(os.Stderr, "peer: %s: %v\n", contender, err)
			return
		}
		go func() {
			if err := answer(conn); err != nil {
				fmt.Fprintf(os.Stderr, "peer: %s: %v\n", contender, err)
			}
		}()
	}
}
