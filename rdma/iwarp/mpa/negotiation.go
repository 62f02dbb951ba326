package mpa

import "fmt"

// RejectError means that the peer speaks MPA and refuses this connection. MPA leaves the TCP
// connection open (RFC 5044 §7.1.2).
type RejectError struct {
	Private []byte // of the Reply
}

// Error does not include the private data.
func (e *RejectError) Error() string { return "mpa: the peer rejected the Request" }

// Initiator is the initiator's half of a negotiation.
type Initiator struct {
	cfg            Config
	request, reply frame
}

// Initiate begins a negotiation and returns the Request. private is at most 255 bytes long including
// the four of revision 2.
func Initiate(cfg Config, private []byte) (i *Initiator, request []byte, err error) {
	f := frame{revision: max(cfg.Revision, 1), private: private}
	if !cfg.NoCRC {
		f.flags |= flagCRC
	}
	switch f.revision {
	case 1:
	case 2:
		f.flags |= flagEnhanced
		f.words = cfg.words()
		if cfg.PeerToPeer { // an empty FPDU is not offered: siw cannot parse it
			f.words.ird |= bitPeerToPeer
			f.words.ord |= bitRTRWrite | bitRTRRead
		}
	default:
		return nil, nil, fmt.Errorf("mpa: unsupported MPA revision %d, want 1 or 2", cfg.Revision)
	}
	request, err = f.bytes(RequestKey)
	return &Initiator{cfg: cfg, request: f}, request, err
}

// Receive reads the Reply from b, which is all that has arrived so far. missing is how many bytes
// the Reply needs at least beyond that, and 0 if it is whole. The error is a *NotMPAError, a
// *RejectError, or a *rdma.ProtocolError for a Reply that violates MPA.
func (i *Initiator) Receive(b []byte) (missing int, err error) {
	missing, err = i.reply.parse(b, replyKey, &i.request)
	if missing == 0 && err == nil && i.reply.rejected() {
		err = &RejectError{Private: i.reply.private}
	}
	return missing, err
}

// Private returns the private data of the Reply.
func (i *Initiator) Private() []byte { return i.reply.private }

// Agreed returns what the Reply, which has been received, means for this end.
func (i *Initiator) Agreed() Params {
	p := Params{CRC: (i.request.flags|i.reply.flags)&flagCRC != 0}
	p.IRD, p.ORD = i.cfg.reads()
	if offered, w := i.request.words, i.reply.words; i.request.enhanced() {
		p.IRD, p.ORD, p.RTR = int(offered.ird&readsMask), int(lower(offered.ord, w.ird)), w.rtr()
	}
	return p
}

// Request is the responder's half of a negotiation. The zero value is one that has not arrived.
type Request struct{ frame frame }

// Receive reads the Request from b, as Initiator.Receive reads the Reply. It returns a
// *NotMPAError, or a *rdma.ProtocolError for a Request that must not be answered.
func (r *Request) Receive(b []byte) (missing int, err error) {
	return r.frame.parse(b, RequestKey, nil)
}

// Revision returns the revision of MPA, 1 or 2. A Reply has the same.
func (r *Request) Revision() int { return r.frame.revision }

// Private returns the private data, up to 512 bytes.
func (r *Request) Private() []byte { return r.frame.private }

// Accept returns a Reply with private, which is limited as in Initiate, and what it means for this
// end. cfg.Revision is ignored.
func (r *Request) Accept(cfg Config, private []byte) (reply []byte, p Params, err error) {
	var flags byte
	if p.CRC = r.frame.flags&flagCRC != 0 || !cfg.NoCRC; p.CRC {
		flags = flagCRC
	}
	var w words
	p.IRD, p.ORD = cfg.reads()
	if asked := r.frame.words; r.frame.enhanced() {
		w = cfg.words() // lowered to what the other end can use
		w.ird, w.ord = lower(w.ird, asked.ord), lower(w.ord, asked.ird)
		p.IRD, p.ORD, p.RTR = int(w.ird), int(w.ord), asked.rtr()
		switch p.RTR {
		case RTRWrite:
			w.ird, w.ord = w.ird|bitPeerToPeer, w.ord|bitRTRWrite
		case RTRRead:
			w.ird, w.ord = w.ird|bitPeerToPeer, w.ord|bitRTRRead
		}
	}
	reply, err = r.reply(flags, w, private)
	return reply, p, err
}

// Reject returns a Reply that refuses the connection, with private, which is limited as in Initiate.
func (r *Request) Reject(private []byte) (reply []byte, err error) {
	return r.reply(flagRejected, words{}, private)
}

// reply returns a Reply of the Request's revision.
func (r *Request) reply(flags byte, w words, private []byte) ([]byte, error) {
	f := frame{flags: flags, revision: r.frame.revision, words: w, private: private}
	if r.frame.enhanced() {
		f.flags |= flagEnhanced
	}
	return f.bytes(replyKey)
}

// words returns what an end of revision 2 says about RDMA Reads.
func (cfg *Config) words() words {
	ird, ord := cfg.reads()
	return words{uint16(min(ird, mostReads)), uint16(min(ord, mostReads))}
}

// lower returns ours, or what the other end says if that is less.
func lower(ours, theirs uint16) uint16 {
	ours, theirs = ours&readsMask, theirs&readsMask
	if theirs == notNegotiated {
		return ours
	}
	return min(ours, theirs)
}

// rtr returns the message that a Reply has chosen, or that a responder chooses.
func (w words) rtr() RTR {
	switch {
	case w.ird&bitPeerToPeer == 0:
	case w.ord&bitRTRWrite != 0:
		return RTRWrite
	case w.ord&bitRTRRead != 0:
		return RTRRead
	}
	return RTRNone
}
