package iwarp

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// metered is a program's own connection, which counts what it carries.
type metered struct {
	*net.TCPConn
	wrote atomic.Int64
}

func (m *metered) Write(b []byte) (int, error) {
	n, err := m.TCPConn.Write(b)
	m.wrote.Add(int64(n))
	return n, err
}

// TestWrapperIsNotBypassed: a wrapped connection is read and written by its own methods, although
// it has those of a socket.
func TestWrapperIsNotBypassed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := ln.Accept()
		assert.NoError(t, err)
		accepted <- c
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	m := &metered{TCPConn: c.(*net.TCPConn)}
	s := <-accepted
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err := ReadRequest(s)
		if !assert.NoError(t, err) {
			return
		}
		q, err := r.Accept(Config{}, nil)
		if assert.NoError(t, err) {
			q.Close()
		}
	}()
	q, _, err := Connect(m, Config{}, nil)
	require.NoError(t, err)
	<-done
	before := m.wrote.Load()
	_, err = q.PostSend([]rdma.SendWR{{Header: make([]byte, 16), Payload: make([]byte, 1000)}})
	if err == nil {
		assert.Eventually(t, func() bool { return m.wrote.Load() > before }, time.Minute, time.Millisecond)
	}
	q.Abort()
}
