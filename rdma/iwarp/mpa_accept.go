package iwarp

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
)

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
	r, err := requestFrom(c)
	if err != nil {
		return nil, err
	}
	r.conn = c
	return r, nil
}

func requestFrom(from io.Reader) (*Request, error) {
	f, err := readFrame(from, RequestKey)
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
		enhanced: enhanced,
		words:    w,
	}, nil
}

// ParseRequest returns the Request in b, which has RequestLen bytes and was read
// from c. Its errors are those of ReadRequest.
func ParseRequest(c net.Conn, b []byte) (*Request, error) {
	r, err := requestFrom(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	r.conn = c
	return r, nil
}

// RequestLen returns the length of the Request that b begins with, at most MaxRequest. It returns
// 0 if b is too short to tell or begins with something else.
func RequestLen(b []byte) int {
	if len(b) < frameHeaderLen || string(b[:KeyLen]) != RequestKey {
		return 0
	}
	n := frameHeaderLen + int(binary.BigEndian.Uint16(b[KeyLen+2:]))
	if n > MaxRequest {
		return 0
	}
	return n
}

// Accept sends a Reply with private, which is at most 255 bytes long including the four of
// revision 2, and returns the queue pair, which then owns the connection. After an error the
// caller still owns it. cfg.Revision is ignored.
func (r *Request) Accept(cfg Config, private []byte) (*QueuePair, error) {
	p, err := r.accept(cfg, private)
	if err != nil {
		return nil, err
	}
	return newQueuePair(r.conn, p)
}

// Divert sends the same Reply as Accept, and nothing else: the connection remains the caller's,
// because both ends continue on another channel.
func (r *Request) Divert(cfg Config, private []byte) error {
	_, err := r.accept(cfg, private)
	return err
}

// accept sends a Reply that accepts, and returns what was agreed.
func (r *Request) accept(cfg Config, private []byte) (params, error) {
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
	return p, r.reply(flags, reply, private)
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
