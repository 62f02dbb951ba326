package iwarp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

// Config is what a caller wants of a queue pair. The zero value asks for revision 1 of MPA with CRC.
type Config = mpa.Config

// Connect is the initiator of MPA: it sends the Request with private, reads the Reply, and returns
// the queue pair and the Reply's private data. private is at most 255 bytes long including the
// four of revision 2.
//
// The deadlines of c, which the caller sets and clears, limit how long it takes. If it succeeds,
// the queue pair owns c. After an error the caller still owns it. The error is a *mpa.RejectError, a
// *mpa.NotMPAError, a *rdma.ProtocolError for a Reply that violates MPA, io.EOF if the peer closed
// instead of replying, or the connection's own error.
func Connect(c net.Conn, cfg Config, private []byte) (*QueuePair, []byte, error) {
	asked, err := Ask(c, cfg, private)
	if err != nil {
		return nil, nil, err
	}
	private, err = asked.Reply()
	if err != nil {
		return nil, nil, err
	}
	q, err := asked.QueuePair()
	return q, private, err
}

// Asked is Connect in steps: a Request that has been sent. It is not safe for concurrent use.
type Asked struct {
	conn    net.Conn
	cfg     Config
	mpa     *mpa.Initiator
	replied bool
}

// Ask sends the Request with private.
func Ask(c net.Conn, cfg Config, private []byte) (*Asked, error) {
	initiator, request, err := mpa.Initiate(cfg, private)
	return &Asked{conn: c, cfg: cfg, mpa: initiator}, send(c, request, err)
}

// Reply reads the Reply and returns its private data. After an error there is no queue pair.
func (a *Asked) Reply() (private []byte, err error) {
	err = receive(a.conn, a.mpa.Receive)
	if a.replied = err == nil; !a.replied {
		return nil, err
	}
	return a.mpa.Private(), nil
}

// QueuePair returns the queue pair, which then owns the connection. It fails if Reply has not
// succeeded. A caller that continues on another channel does not call it.
func (a *Asked) QueuePair() (*QueuePair, error) {
	if !a.replied {
		return nil, errors.New("iwarp: no MPA Reply received for the Request")
	}
	return newQueuePair(a.conn, params{a.mpa.Agreed(), true, a.cfg.ULPDU(segmentSize(a.conn))})
}

// Request is an MPA Request that the caller answers once, with Accept or Reject. It is not safe for
// concurrent use.
type Request struct {
	Revision int    // of MPA, 1 or 2
	Private  []byte // up to 512 bytes, without the words of revision 2

	conn net.Conn
	mpa  mpa.Request
}

// ReadRequest is the responder of MPA: it reads a Request and not a byte more. The deadlines of c,
// which the caller sets and clears, limit how long that takes.
//
// It returns a *mpa.NotMPAError if the peer sends something else, a *rdma.ProtocolError if the
// Request must not be answered, io.EOF if the peer closed without sending anything, and the
// connection's error otherwise. c remains the caller's.
func ReadRequest(c net.Conn) (*Request, error) {
	r := &Request{conn: c}
	if err := receive(c, r.mpa.Receive); err != nil {
		return nil, err
	}
	r.Revision, r.Private = r.mpa.Revision(), r.mpa.Private()
	return r, nil
}

// Accept sends a Reply with private, which is limited as in Connect, and returns the queue pair, which
// then owns the connection. After an error the caller still owns it. cfg.Revision is ignored.
func (r *Request) Accept(cfg Config, private []byte) (*QueuePair, error) {
	reply, agreed, err := r.mpa.Accept(cfg, private)
	if err := send(r.conn, reply, err); err != nil {
		return nil, err
	}
	return newQueuePair(r.conn, params{agreed, false, cfg.ULPDU(segmentSize(r.conn))})
}

// Reject sends a Reply that refuses the connection, with private, which is limited as in Connect. MPA
// leaves the TCP connection open, and it remains the caller's; siw and hardware close theirs.
func (r *Request) Reject(private []byte) error {
	reply, err := r.mpa.Reject(private)
	return send(r.conn, reply, err)
}

// send sends a frame, unless err says why there is none, with a single Write: siw drops a connection if
// a frame arrives in pieces.
func send(c net.Conn, frame []byte, err error) error {
	if err != nil {
		return err
	}
	if _, err := c.Write(frame); err != nil {
		return fmt.Errorf("iwarp: write MPA frame: %w", err)
	}
	return nil
}

// receive reads one frame and not a byte more, because FPDUs may follow it. It gives parse all that
// has arrived after each Read: a peer that does not know MPA may send less than the key and then
// wait. If the frame is cut short, receive returns the reader's error or io.ErrUnexpectedEOF; io.EOF
// if there was no byte at all.
func receive(r io.Reader, parse func(b []byte) (missing int, err error)) error {
	var b []byte
	var failed error
	for {
		missing, err := parse(b)
		switch {
		case err != nil || missing == 0:
			return err
		case failed != nil && len(b) == 0:
			return failed
		case failed != nil:
			if failed == io.EOF {
				failed = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("iwarp: MPA frame truncated after %d of %d bytes: %w", len(b), len(b)+missing, failed)
		}
		var n int
		b = slices.Grow(b, missing)
		n, failed = r.Read(b[len(b) : len(b)+missing])
		b = b[:len(b)+n]
	}
}
