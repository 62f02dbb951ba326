package iwarp

import "net"

// Request is an MPA Request that has been read and not answered. The caller answers it once, with
// Accept or Reject, or closes the connection. It is not safe for concurrent use.
type Request struct {
	Revision int    // of MPA, 1 or 2
	CRC      bool   // the initiator asks for CRC
	Private  []byte // up to 512 bytes, without the words of revision 2

	conn     net.Conn
	enhanced bool // it has words
	words    words
}

// ReadRequest is the responder of MPA: it reads a Request and not a byte more. The deadlines of c,
// which the caller sets and clears, limit how long that takes.
//
// It returns a *NotMPAError if the peer sends something else, a *rdma.ProtocolError if the Request
// must not be answered, io.EOF if the peer closed without sending anything, and the connection's
// error otherwise. c remains the caller's.
func ReadRequest(c net.Conn) (*Request, error) {
	f, err := readFrame(c, RequestKey)
	if err != nil {
		return nil, err
	}
	w, private, enhanced, err := f.takeWords()
	if err != nil {
		return nil, err
	}
	return &Request{
		Revision: f.revision,
		CRC:      f.flags&flagCRC != 0,
		Private:  private,
		conn:     c,
		enhanced: enhanced,
		words:    w,
	}, nil
}

// Accept sends a Reply with private, which is at most 255 bytes long including the four of
// revision 2, and returns the queue pair, which then owns the connection. After an error the
// caller still owns it. cfg.Revision is ignored.
func (r *Request) Accept(cfg Config, private []byte) (*QueuePair, error) {
	p := params{crc: r.CRC || !cfg.NoCRC, maxULPDU: cfg.maxULPDU(r.conn)}
	p.ird, p.ord = cfg.reads()
	var reply words
	if r.enhanced {
		reply, p.rtr = cfg.answer(r.words)
		p.ird, p.ord = reply.ird, reply.ord
	}
	var flags byte
	if p.crc {
		flags = flagCRC
	}
	if err := r.reply(flags, reply, private); err != nil {
		return nil, err
	}
	return newQueuePair(r.conn, p)
}

// Reject sends a Reply that refuses the connection, with private, which is at most 255 bytes long
// including the four of revision 2. MPA leaves the TCP connection open, and it remains the
// caller's; siw and hardware close theirs.
func (r *Request) Reject(private []byte) error {
	return r.reply(flagRejected, words{}, private)
}

// reply sends a Reply of the Request's revision.
func (r *Request) reply(flags byte, w words, private []byte) error {
	f := frame{flags: flags, revision: r.Revision, private: private}
	if r.enhanced {
		f.flags |= flagEnhanced
		f.private = append(w.appendTo(nil), private...)
	}
	return f.write(r.conn, replyKey)
}
