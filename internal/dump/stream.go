package dump

import (
	"net/netip"
	"strconv"
	"time"
)

// A Stream is one connection of a Dump. Its methods must be called in the order of the bytes of
// each direction; the two directions may be concurrent. Sent and Received may wait for the file for
// a moment (maxWait); the others do not.
type Stream struct {
	dump          *Dump
	local, remote netip.AddrPort
	comment       string // for the next packet
	sent, got     half
}

// half is one direction of a stream. Guarded by Dump.mu.
type half struct {
	next  uint32 // sequence number
	ended bool   // by a FIN or a reset
}

// A Conn describes a connection.
type Conn struct {
	ID            uint64 // of the process
	Local, Remote netip.AddrPort
	Text          string // says what it is, such as its program and device
	Dialled       bool   // by this end
	Begins        bool   // it has not carried anything
}

// Stream adds a connection to the dump.
func (d *Dump) Stream(c Conn) *Stream {
	s := &Stream{dump: d, comment: c.Text}
	s.local, s.remote = pair(c.Local, c.Remote, c.ID)
	// Connections with the same ports must not look like one, so each begins elsewhere.
	s.sent.next = uint32(c.ID * 2654435761)
	s.got.next = s.sent.next ^ 1<<31
	d.mu.Lock()
	defer d.mu.Unlock()
	if !c.Begins {
		s.comment += ". It carried bytes before the dump began"
		return s
	}
	first, second := &s.got, &s.sent
	if c.Dialled {
		first, second = second, first
	}
	s.addLocked(first == &s.sent, syn, nil)
	first.next++
	s.addLocked(second == &s.sent, syn|ack, nil)
	second.next++
	s.addLocked(first == &s.sent, ack, nil)
	return s
}

// Dump returns the dump to which the stream belongs.
func (s *Stream) Dump() *Dump { return s.dump }

// Sent adds bytes that this end is about to send.
func (s *Stream) Sent(b []byte) { s.data(&s.sent, b) }

// NotSent says that the last n bytes of Sent were not sent after all.
func (s *Stream) NotSent(n int) {
	if n > 0 {
		s.back(&s.sent, n, "The Write before this failed: its last "+strconv.Itoa(n)+" bytes were not sent")
	}
}

// Received adds bytes that the program has read.
func (s *Stream) Received(b []byte) { s.data(&s.got, b) }

// NotReceived says that the last n bytes of Received can still be read.
func (s *Stream) NotReceived(n int) {
	if n > 0 {
		s.back(&s.got, n, "The last "+strconv.Itoa(n)+" bytes before this were returned, and are read again")
	}
}

// EndSent says that this end sends nothing more; EndReceived, that the peer does.
func (s *Stream) EndSent() { s.end(&s.sent, fin|ack) }

// EndReceived says that everything from the peer was received.
func (s *Stream) EndReceived() { s.end(&s.got, fin|ack) }

// ResetSent says that this end has reset the connection; ResetReceived, that the peer has.
func (s *Stream) ResetSent() { s.end(&s.sent, rst|ack) }

// ResetReceived says that the peer has reset the connection.
func (s *Stream) ResetReceived() { s.end(&s.got, rst|ack) }

func (s *Stream) data(h *half, b []byte) {
	d := s.dump
	d.mu.Lock()
	defer d.mu.Unlock()
	var until time.Time
	for len(b) > 0 {
		n := min(len(b), maxData)
		d.waitLocked(n, &until)
		if h.ended {
			return
		}
		flags := byte(ack)
		if n == len(b) {
			flags |= psh
		}
		s.addLocked(h == &s.sent, flags, b[:n])
		h.next += uint32(n)
		b = b[n:]
	}
}

func (s *Stream) back(h *half, n int, comment string) {
	s.dump.mu.Lock()
	defer s.dump.mu.Unlock()
	if h.ended {
		return
	}
	h.next -= uint32(n)
	s.comment = comment
}

func (s *Stream) end(h *half, flags byte) {
	s.dump.mu.Lock()
	defer s.dump.mu.Unlock()
	if h.ended {
		return
	}
	s.addLocked(h == &s.sent, flags, nil)
	h.next++
	h.ended = true
	if flags&rst != 0 {
		s.sent.ended, s.got.ended = true, true
	}
}

// addLocked adds a packet of one direction.
func (s *Stream) addLocked(out bool, flags byte, data []byte) {
	p := packet{from: s.remote, to: s.local, seq: s.got.next, ack: s.sent.next, flags: flags, comment: s.comment}
	if out {
		p = packet{from: s.local, to: s.remote, out: true, seq: s.sent.next, ack: s.got.next, flags: flags, comment: s.comment}
	}
	if flags&ack == 0 {
		p.ack = 0
	}
	if s.dump.addLocked(p, data) {
		s.comment = ""
	}
}
