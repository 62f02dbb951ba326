// Package stats has the statistics that package sdp returns: of a connection, of a process, and of
// the set-up of connections.
package stats

// Counts counts messages and the bytes of the stream that they carried.
type Counts struct {
	Messages uint64
	Bytes    uint64
}

// Add adds o.
func (c *Counts) Add(o Counts) {
	c.Messages += o.Messages
	c.Bytes += o.Bytes
}

// Traffic counts what connections have carried. The counters only grow.
//
// Sent returns the bytes that Writes have sent, and Received those that have arrived or, on TCP and shm,
// that Reads have returned.
type Traffic struct {
	// TCPSent and TCPReceived are bytes of the stream that went through TCP sockets, and ShmSent and
	// ShmReceived those that went through shared memory.
	TCPSent, TCPReceived, ShmSent, ShmReceived uint64
	Moves                                      uint64 // of connections to shared memory

	// BcopySent and BcopyReceived count the messages with payload. Few bytes per message mean
	// that the program's Writes are small.
	BcopySent, BcopyReceived Counts
	// ControlSent and ControlReceived count the messages without payload, which grant credit
	// or belong to zero copy. A busy connection has far fewer of them than messages with
	// payload.
	ControlSent, ControlReceived uint64
	// CreditStalls counts how often a Write waited because the peer had no free buffer. If it
	// grows, the peer's program reads more slowly than this one writes.
	CreditStalls uint64

	ZCopySent     uint64 // bytes of Writes that were sent without a copy
	ZCopyReceived uint64 // bytes of Reads that were received without a copy
	Advertised    uint64 // Writes and Reads, or parts of them, that were offered to the peer for zero copy
	// Cancels counts the offers that were withdrawn, because the peer did not use them in time
	// or the call ended. If it is not much smaller than Advertised, zero copy does not suit the
	// traffic: raise Config.ZCopyThreshold.
	Cancels     uint64
	SendSmSent  uint64 // offers of the peer that this end received as messages, because its Reads were small
	SendSmCame  uint64 // offers of this end that the peer received as messages
	ModeChanges uint64 // changes between the protocol's modes of zero copy, in both directions
}

// Sent returns how many bytes of the stream Writes have sent.
func (t *Traffic) Sent() uint64 { return t.TCPSent + t.ShmSent + t.BcopySent.Bytes + t.ZCopySent }

// Received returns how many bytes of the stream have arrived.
func (t *Traffic) Received() uint64 {
	return t.TCPReceived + t.ShmReceived + t.BcopyReceived.Bytes + t.ZCopyReceived
}

// Add adds o.
func (t *Traffic) Add(o Traffic) {
	t.TCPSent += o.TCPSent
	t.TCPReceived += o.TCPReceived
	t.ShmSent += o.ShmSent
	t.ShmReceived += o.ShmReceived
	t.Moves += o.Moves
	t.BcopySent.Add(o.BcopySent)
	t.BcopyReceived.Add(o.BcopyReceived)
	t.ControlSent += o.ControlSent
	t.ControlReceived += o.ControlReceived
	t.CreditStalls += o.CreditStalls
	t.ZCopySent += o.ZCopySent
	t.ZCopyReceived += o.ZCopyReceived
	t.Advertised += o.Advertised
	t.Cancels += o.Cancels
	t.SendSmSent += o.SendSmSent
	t.SendSmCame += o.SendSmCame
	t.ModeChanges += o.ModeChanges
}
