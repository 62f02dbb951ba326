package iwarp

import (
	"net"
	"testing"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/rdmatest"
)

// TestApart runs the suite with the two ends in two processes, over each kind of transport. The
// other variants behave no differently in two processes.
func TestApart(t *testing.T) {
	for _, v := range variants {
		if v.name != "nocrc" && v.name != "stream" {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			a, b := halves(v.cfg, v.stream)
			rdmatest.RunApart(t, a, b)
		})
	}
}

// halves are the side that connects and the side that accepts.
func halves(cfg Config, stream bool) (initiator, responder rdmatest.Half) {
	hide := func(c net.Conn) net.Conn {
		if stream {
			return streamOnly{c}
		}
		return c
	}
	initiator = func(t *testing.T, line *rdmatest.Line) rdma.QueuePair {
		var address string
		line.Hear(&address)
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		q, _, err := Connect(hide(c), cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	responder = func(t *testing.T, line *rdmatest.Line) rdma.QueuePair {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		line.Say(l.Addr().String())
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		request, err := ReadRequest(hide(c))
		if err != nil {
			t.Fatal(err)
		}
		q, err := request.Accept(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	return initiator, responder
}
