package iwarp

import (
	"errors"
	"fmt"
	"net"
)

// RejectError says that the peer speaks MPA and does not want this connection.
// MPA leaves the TCP connection open then (RFC 5044 §7.1.2).
type RejectError struct {
	Private []byte // of the Reply
}

// Error leaves the private data out.
func (e *RejectError) Error() string { return "iwarp: the peer rejected the MPA Request" }

// Connect is MPA's initiator: it sends the Request with private, reads the
// Reply, and returns the queue pair and the Reply's private data. At most 255
// bytes of private data are sent, the four of revision 2 included.
//
// How long it takes is limited by the deadlines of c, which the caller sets and
// clears. Without an error c belongs to the queue pair; with one it is still the
// caller's: a *RejectError, a *NotMPAError, a *rdma.ProtocolError for a Reply
// that violates MPA, io.EOF when the peer closed instead of replying, or the
// connection's own error.
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

// Asked is Connect step by step: a Request that has been sent. Unsafe for
// concurrent use.
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
		return nil, fmt.Errorf("iwarp: MPA revision %d: 1 and 2 are known", cfg.Revision)
	}
	return a, a.request.write(c, RequestKey)
}

// Look looks for the Reply of a peer on this host for a moment, as long as that
// lately was worth it, and reports that it has come: then Reply waits for nothing.
func (a *Asked) Look() bool { return lookForReply(a.conn) }

// Reply reads the Reply, and returns its private data. With an error there will
// be no queue pair.
func (a *Asked) Reply() (private []byte, err error) {
	reply, err := readFrame(a.conn, replyKey)
	if err != nil {
		return nil, err
	}
	a.agreed, private, err = a.request.settle(reply, a.cfg, a.offered)
	a.replied = err == nil
	return private, err
}

// QueuePair returns the queue pair, to which the connection belongs from now on,
// and an error if Reply has not been called with success. It is not needed if both
// ends have agreed to go on elsewhere.
func (a *Asked) QueuePair() (*QueuePair, error) {
	if !a.replied {
		return nil, errors.New("iwarp: no Reply has agreed to the Request")
	}
	a.agreed.maxULPDU = a.cfg.maxULPDU(a.conn)
	return newQueuePair(a.conn, a.agreed)
}

// settle returns what the Reply to f comes to, and its private data.
func (f *frame) settle(reply *frame, cfg Config, offered words) (params, []byte, error) {
	if reply.revision != f.revision {
		return params{}, nil, badFrame(ruleFrame, "Reply has MPA revision %d, our Request %d", reply.revision, f.revision)
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
