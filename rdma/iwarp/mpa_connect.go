package iwarp

import (
	"errors"
	"fmt"
	"net"
)

// RejectError means that the peer speaks MPA and refuses this connection. MPA leaves the TCP
// connection open (RFC 5044 §7.1.2).
type RejectError struct {
	Private []byte // of the Reply
}

// Error does not include the private data.
func (e *RejectError) Error() string { return "iwarp: the peer rejected the MPA Request" }

// Connect is the initiator of MPA: it sends the Request with private, reads the Reply, and returns
// the queue pair and the Reply's private data. private is at most 255 bytes long including the
// four of revision 2.
//
// The deadlines of c, which the caller sets and clears, limit how long it takes. If it succeeds,
// the queue pair owns c. After an error the caller still owns it. The error is a *RejectError, a
// *NotMPAError, a *rdma.ProtocolError for a Reply that violates MPA, io.EOF if the peer closed
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
	request frame
	offered words
	agreed  params
	replied bool
}

// Ask sends the Request with private.
func Ask(c net.Conn, cfg Config, private []byte) (*Asked, error) {
	a := &Asked{conn: c, cfg: cfg, request: frame{revision: cfg.revision(), private: private}}
	if !cfg.NoCRC {
		a.request.flags |= flagCRC
	}
	switch a.request.revision {
	case 1:
	case 2:
		a.request.flags |= flagEnhanced
		a.offered = cfg.offer()
		a.request.private = append(a.offered.appendTo(nil), private...)
	default:
		return nil, fmt.Errorf("iwarp: unsupported MPA revision %d, want 1 or 2", cfg.Revision)
	}
	return a, a.request.write(c, RequestKey)
}

// Reply reads the Reply and returns its private data. After an error there is no queue pair.
func (a *Asked) Reply() (private []byte, err error) {
	reply, err := readFrame(a.conn, replyKey)
	if err != nil {
		return nil, err
	}
	a.agreed, private, err = a.request.settle(reply, a.cfg, a.offered)
	a.replied = err == nil
	return private, err
}

// QueuePair returns the queue pair, which then owns the connection. It fails if Reply has not
// succeeded. A caller that continues on another channel does not call it.
func (a *Asked) QueuePair() (*QueuePair, error) {
	if !a.replied {
		return nil, errors.New("iwarp: no MPA Reply received for the Request")
	}
	a.agreed.maxULPDU = a.cfg.maxULPDU(a.conn)
	return newQueuePair(a.conn, a.agreed)
}

// settle returns what the Reply to f means for this end, and its private data.
func (f *frame) settle(reply *frame, cfg Config, offered words) (params, []byte, error) {
	if reply.revision != f.revision {
		return params{}, nil, badFrame(ruleFrame, "Reply has MPA revision %d, want %d", reply.revision, f.revision)
	}
	answered, private, enhanced, err := reply.takeWords()
	if err != nil {
		return params{}, nil, err
	}
	if reply.flags&flagRejected != 0 {
		return params{}, nil, &RejectError{Private: private}
	}
	p := params{initiator: true, crc: (f.flags|reply.flags)&flagCRC != 0}
	p.ird, p.ord = cfg.reads()
	if f.revision == 1 {
		return p, private, nil
	}
	if !enhanced {
		return params{}, nil, badFrame(ruleEnhanced, "Reply of revision 2 without S")
	}
	p.ird = offered.ird
	p.ord, p.rtr, err = offered.agree(answered)
	return p, private, err
}
