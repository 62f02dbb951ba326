package iwarp

import (
	"fmt"
	"net"
)

// RejectError says that the peer speaks MPA and does not want this connection.
// MPA leaves the TCP connection open then (RFC 5044 §7.1.2).
type RejectError struct {
	Private []byte // of the Reply
}

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
	request := frame{revision: cfg.revision(), private: private}
	if !cfg.NoCRC {
		request.flags |= flagCRC
	}
	var offered words
	switch request.revision {
	case 1:
	case 2:
		request.flags |= flagEnhanced
		offered = cfg.offer()
		request.private = append(offered.appendTo(nil), private...)
	default:
		return nil, nil, fmt.Errorf("iwarp: MPA revision %d: 1 and 2 are known", cfg.Revision)
	}
	if err := request.write(c, RequestKey); err != nil {
		return nil, nil, err
	}
	if cfg.Near {
		lookForReply(c)
	}
	reply, err := readFrame(c, replyKey)
	if err != nil {
		return nil, nil, err
	}
	p, private, err := request.settle(reply, cfg, offered)
	if err != nil {
		return nil, nil, err
	}
	p.maxULPDU = cfg.maxULPDU(c)
	q, err := newQueuePair(c, p)
	return q, private, err
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
