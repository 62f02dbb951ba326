package lab_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/test/lab"
)

// patience limits how long a test waits for the machine, whose processor is emulated.
const patience = time.Minute

// end is this library's end of a connection with siw.
type end struct {
	t testing.TB
	*iwarp.QueuePair
}

// listen listens for a connection from siw.
func listen(t testing.TB, cfg iwarp.Config) (port int, accept func() *end) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().(*net.TCPAddr).Port, func() *end {
		t.Helper()
		defer listener.Close()
		require.NoError(t, listener.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
		conn, err := listener.Accept()
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		request, err := iwarp.ReadRequest(conn)
		require.NoError(t, err)
		q, err := request.Accept(cfg, nil)
		require.NoError(t, err)
		return newEnd(t, conn, q)
	}
}

// dial connects to a server in the machine.
func dial(t testing.TB, address string, cfg iwarp.Config) *end {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	q, _, err := iwarp.Connect(conn, cfg, nil)
	require.NoError(t, err)
	return newEnd(t, conn, q)
}

func newEnd(t testing.TB, conn net.Conn, q *iwarp.QueuePair) *end {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Time{}))
	q.ProvideReceive(16, 64<<10)
	watch := time.AfterFunc(patience, func() { q.Abort() })
	t.Cleanup(func() { watch.Stop(); q.Abort() })
	return &end{t, q}
}

// next waits for a completion, or the end of the queue pair.
func (e *end) next() (rdma.Completion, error) {
	var wc [1]rdma.Completion
	for {
		if n, err := e.Wait(wc[:]); n > 0 || err != nil {
			return wc[0], err
		}
	}
}

// done waits for a completion of the given kind.
func (e *end) done(op rdma.Op) rdma.Completion {
	e.t.Helper()
	wc, err := e.next()
	require.NoError(e.t, err)
	require.Equal(e.t, op, wc.Op)
	return wc
}

// failure waits for the end of the queue pair, and ignores completions before it.
func (e *end) failure() error {
	for {
		wc, err := e.next()
		if err != nil {
			return err
		}
		if wc.Op == rdma.OpReceive {
			wc.Buffer.Release()
		}
	}
}

// receive waits for a message.
func (e *end) receive() []byte {
	e.t.Helper()
	buffer := e.done(rdma.OpReceive).Buffer
	defer buffer.Release()
	return append([]byte(nil), buffer.Bytes...)
}

// receiving receives on another goroutine until the queue pair ends.
func (e *end) receiving() <-chan []byte {
	messages := make(chan []byte, 16)
	go func() {
		defer close(messages)
		for {
			wc, err := e.next()
			if err != nil {
				return
			}
			messages <- append([]byte(nil), wc.Buffer.Bytes...)
			wc.Buffer.Release()
		}
	}()
	return messages
}

// send sends one message, whose first byte is its header.
func (e *end) send(message []byte) {
	e.t.Helper()
	for {
		n, err := e.PostSend([]rdma.SendWR{{Header: message[:1], Payload: message[1:]}})
		require.NoError(e.t, err)
		if n == 1 {
			e.Flush()
			return
		}
		require.NoError(e.t, e.WaitRoom())
	}
}

// read reads from siw's memory by RDMA Read.
func (e *end) read(local []byte, from rdma.Region) {
	e.t.Helper()
	require.NoError(e.t, e.PostRead(rdma.ReadWR{Local: local, STag: from.STag, VA: from.VA}))
	e.Flush()
	e.done(rdma.OpRead)
	// write writes to siw's memory by RDMA Write.
}

func (e *end) write(local []byte, to rdma.Region) {
	e.t.Helper()
	require.NoError(e.t, e.PostWrite(rdma.WriteWR{Local: local, STag: to.STag, VA: to.VA}))
	e.Flush()
	e.done(rdma.OpWrite)
}

// rpingClient makes siw's rping connect as a client and advertise a ping of size bytes. It
// returns the region of the ping, which may be read and written.
func rpingClient(t testing.TB, m *lab.Machine, cfg iwarp.Config, size int) (*end, rdma.Region, *lab.Command) {
	t.Helper()
	port, accept := listen(t, cfg)
	client := m.Start(t, rpingScript(fmt.Sprintf("rping -c -a %s -p %d -V -C 1 -S %d", lab.Host, port, size)))
	e := accept()
	return e, region(e.receive()), client
}

// rpingServer connects to siw's rping as a client. It has not advertised anything.
func rpingServer(t testing.TB, m *lab.Machine, cfg iwarp.Config) (*end, *lab.Command) {
	t.Helper()
	server := m.Start(t, rpingScript(fmt.Sprintf("rping -s -q -a %s -p %d -S 65535", lab.Guest, port)))
	m.Listening(t, port)
	return dial(t, m.Address(port), cfg), server
}

// rpingScript returns a script that runs an rping and prints its output. It kills the rping
// one second after the end of the connection, because rping does not always exit then.
func rpingScript(rping string) string {
	return rping + ` 2>/tmp/rping.$$ &
		for i in {1..1200}; do
			kill -0 $! 2>/dev/null && ! grep -q DISCONNECT /tmp/rping.$$ || break
			sleep 0.05
		done
		for i in {1..20}; do
			kill -0 $! 2>/dev/null || break
			sleep 0.05
		done
		kill -KILL $! 2>/dev/null
		cat /tmp/rping.$$`
}
