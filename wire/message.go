package wire

import "encoding/binary"

// Mode is the flow control mode of one direction (§11).
type Mode uint8

const (
	ModeBuffered  Mode = 0 // every byte is copied
	ModeCombined  Mode = 1 // the initial mode: one SrcAvail at a time
	ModePipelined Mode = 2 // many advertisements of both kinds
)

// Advert is an advertised buffer: the extension of SrcAvail (§6.3.2) and
// SinkAvail (§6.3.3).
type Advert struct {
	Len  uint32 // bytes in the buffer, 1 to MaxSize
	STag uint32 // identifies the region to the peer
	VA   uint64 // the tagged offset of its first byte
	// NonDiscards, in SinkAvail only, counts modulo 2³² the messages with payload
	// that its sender has received and that used up no advertised buffer.
	NonDiscards uint32
}

// Message is any message except Hello and HelloAck; see [Hello]. Fields that its
// MID does not use are zero. It is not safe for concurrent use.
type Message struct {
	Header
	// Size is the number of bytes moved (RdmaWrCompl, RdmaRdCompl), or the desired
	// (ChRcvBuf) or actual (ChRcvBufAck) size of a private buffer including the header.
	Size   uint32
	Advert Advert // SrcAvail, SinkAvail
	Mode   Mode   // ModeChange: the new mode
	// ModeOfSend is ModeChange's S bit. If it is set, the mode is that of the direction
	// in which the receiver of this message sends; otherwise of the one in which it
	// receives (§6.3.8.1).
	ModeOfSend bool
	// Payload has the program's bytes in Data, SrcAvail and SinkAvail; nil if there
	// are none.
	Payload []byte
}

// AppendHeader appends the message without its payload: BSDH and extension, at most
// MaxHeaderLen bytes. It sets m.Len to the length of the whole message (§6.1.4). The
// caller sends the payload after it. AppendHeader does not check m. It allocates
// nothing if b has room.
func (m *Message) AppendHeader(b []byte) []byte {
	m.Len = uint32(HeaderLen + m.MID.kind().extLen + len(m.Payload))
	b = m.Header.append(b)
	switch m.MID {
	case MIDRdmaWrCompl, MIDRdmaRdCompl, MIDChRcvBuf, MIDChRcvBufAck:
		b = binary.BigEndian.AppendUint32(b, m.Size)
	case MIDModeChange:
		// Ours: the draft has S and Mode in the word's last bits. The first
		// implementations put them first, and so do we.
		mode := byte(m.Mode) << 4
		if m.ModeOfSend {
			mode |= 0x80
		}
		b = append(b, mode, 0, 0, 0)
	case MIDSrcAvail:
		b = m.Advert.append(b)
	case MIDSinkAvail:
		b = m.Advert.append(b)
		b = binary.BigEndian.AppendUint32(b, m.Advert.NonDiscards)
	}
	return b
}

func (a *Advert) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, a.Len)
	b = binary.BigEndian.AppendUint32(b, a.STag)
	return binary.BigEndian.AppendUint64(b, a.VA)
}

// Parse sets m to the message in b, which must contain all of it and nothing else. m.Payload
// points into b. It returns an *Error for everything that the draft forbids in a single
// message; then m must not be used. It ignores reserved bits, and does not check sequence
// numbers and credit. It allocates nothing for a valid message.
func (m *Message) Parse(b []byte) error {
	if len(b) < HeaderLen {
		return malformed("message", "BSDH", "has %d of %d bytes", len(b), HeaderLen)
	}
	*m = Message{}
	m.Header.parse(b)
	k := m.MID.kind()
	switch {
	case k.name == "":
		return malformed(m.MID.String(), "MID", "is unknown")
	case k.refused != "":
		return malformed(k.name, "MID", "%s", k.refused)
	case uint64(m.Len) != uint64(len(b)):
		return malformed(k.name, "Len", "is %d in a message of %d bytes", m.Len, len(b))
	case len(b) < HeaderLen+k.extLen:
		return malformed(k.name, k.extension, "has %d of %d bytes", len(b)-HeaderLen, k.extLen)
	}
	extension, payload := b[HeaderLen:HeaderLen+k.extLen], b[HeaderLen+k.extLen:]
	if len(payload) > 0 {
		if !k.payload {
			return malformed(k.name, "payload", "%d bytes where none are allowed", len(payload))
		}
		m.Payload = payload
	}
	return m.parseExtension(extension)
}

// parseExtension reads the extension, which must be complete.
func (m *Message) parseExtension(b []byte) error {
	switch m.MID {
	case MIDRdmaWrCompl, MIDRdmaRdCompl:
		m.Size = binary.BigEndian.Uint32(b)
		if m.Size > MaxSize {
			return malformed(m.MID.String(), m.MID.kind().extension+" Len", "%d bytes moved, more than any advertisement", m.Size)
		}
	case MIDChRcvBuf:
		m.Size = binary.BigEndian.Uint32(b)
		return checkBuffer(m.MID, "DesSz", m.Size)
	case MIDChRcvBufAck:
		m.Size = binary.BigEndian.Uint32(b)
		return checkBuffer(m.MID, "ActSz", m.Size)
	case MIDModeChange:
		m.Mode, m.ModeOfSend = Mode(b[0]>>4&7), b[0]&0x80 != 0
		if m.Mode > ModePipelined {
			return malformed(m.MID.String(), "Mode", "is %d, a reserved value", m.Mode)
		}
	case MIDSrcAvail:
		m.Advert.parse(b)
		if err := m.checkAdvert(); err != nil {
			return err
		}
		// The buffer includes the payload (§6.3.2.2), and at least one byte must be
		// left to read.
		if uint64(len(m.Payload)) >= uint64(m.Advert.Len) {
			return malformed(m.MID.String(), "payload", "%d bytes of an advertised buffer of %d", len(m.Payload), m.Advert.Len)
		}
	case MIDSinkAvail:
		m.Advert.parse(b)
		m.Advert.NonDiscards = binary.BigEndian.Uint32(b[16:])
		return m.checkAdvert()
	}
	return nil
}

func (a *Advert) parse(b []byte) {
	a.Len = binary.BigEndian.Uint32(b)
	a.STag = binary.BigEndian.Uint32(b[4:])
	a.VA = binary.BigEndian.Uint64(b[8:])
}

func (m *Message) checkAdvert() error {
	if m.Advert.Len == 0 || m.Advert.Len > MaxSize {
		return malformed(m.MID.String(), m.MID.kind().extension+" Len", "is %d, allowed are 1 to %d", m.Advert.Len, uint32(MaxSize))
	}
	return nil
}

// checkBuffer checks the size of a private buffer.
func checkBuffer(message MID, field string, size uint32) error {
	if size < MinBuffer || size > MaxSize {
		return malformed(message.String(), field, "is %d, allowed are %d to %d", size, MinBuffer, uint32(MaxSize))
	}
	return nil
}
