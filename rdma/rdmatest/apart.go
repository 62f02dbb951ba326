package rdmatest

import (
	"bytes"
	"net"
	"os"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// Half makes one end of a channel while the other role makes the other end, perhaps in another
// process. The two use the line to tell each other what they need. It fails the test if it cannot.
// The suite closes the queue pair.
type Half func(t *testing.T, line *Line) rdma.QueuePair

// RunApart checks a device with the two ends in two processes. Each scene runs twice: with both
// roles in this process, unless one of them is killed, and with role b in a process of its own. That
// process is this test binary, run with the same subtest, so the path to RunApart must be the same
// there. Neither half may rely on what the other has done in its process. Like Run, RunApart must not
// run concurrently with other tests.
func RunApart(t *testing.T, a, b Half) {
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			if !s.kills {
				t.Run("together", func(t *testing.T) { s.together(t, a, b) })
			}
			t.Run("apart", func(t *testing.T) { s.apart(t, a, b) })
		})
	}
}

// scene is a check whose two roles share only a channel and a line.
type scene struct {
	name  string
	a, b  func(r *role)
	kills bool // a kills the process of b, which would not end otherwise
}

// role is one of the two in a scene.
type role struct {
	*end
	line *Line
	kill func() // kills the other role's process; nil if there is none
}

// play runs one role as a subtest of its own, so that each can fail. The other one then finds the
// line closed.
func (s scene) play(t *testing.T, name string, half Half, line *Line, kill func()) {
	t.Run(name, func(t *testing.T) {
		line.t = t
		defer line.conn.Close()
		q := half(t, line)
		r := &role{newEnd(t, name, q, min(segment, q.Limits().MaxMessage)), line, kill}
		r.open()
		r.line.Meet() // both have receive buffers
		if name == "a" {
			s.a(r)
		} else {
			s.b(r)
		}
		if !s.kills {
			r.line.Meet() // neither needs the channel any more
		}
	})
}

// together runs both roles in this process.
func (s scene) together(t *testing.T, a, b Half) {
	guard(t)
	l := listenLine(t)
	far := dialLine(t, l.Addr().String())
	near := acceptLine(t, l)
	must(t, l.Close())
	played := background(func() { s.play(t, "b", b, far, nil) })
	s.play(t, "a", a, near, nil)
	<-played
}

// apart runs role a in this process and starts another one for role b. In that process, it runs role
// b.
func (s scene) apart(t *testing.T, a, b Half) {
	if address := os.Getenv(lineVariable); address != "" {
		guard(t)
		s.play(t, "b", b, dialLine(t, address), nil)
		return
	}
	guard(t)
	l := listenLine(t)
	var output bytes.Buffer
	cmd := again(t.Name(), lineVariable+"="+l.Addr().String())
	cmd.Stdout, cmd.Stderr = &output, &output
	must(t, cmd.Start())
	killed := false
	kill := func() {
		killed = true
		must(t, cmd.Process.Kill())
	}
	t.Cleanup(func() {
		late := time.AfterFunc(patience/2, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := cmd.Wait(); err != nil && !killed {
			t.Errorf("the process of role b: %v\n%s", err, output.Bytes())
		}
	})
	s.play(t, "a", a, acceptLine(t, l), kill)
}

// listenLine listens for role b.
func listenLine(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// acceptLine waits for role b.
func acceptLine(t *testing.T, l *net.TCPListener) *Line {
	t.Helper()
	must(t, l.SetDeadline(time.Now().Add(patience/4)))
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("the other role does not come: %v", err)
	}
	return newLine(t, conn)
}

// dialLine connects role b.
func dialLine(t *testing.T, address string) *Line {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must(t, err)
	return newLine(t, conn)
}
