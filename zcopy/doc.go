// Package zcopy is zero copy: SDP's advertisements of memory, and what becomes
// of them (§9.2 to §9.5, §11, §12 of draft-pinkerton-iwarp-sdp-01), as protocol
// state without goroutine, lock, clock or I/O.
//
// Each end of a connection has a [Source] for the direction in which it sends,
// and a [Sink] for the one in which it receives. Their owner tells them what has
// come, what its program wants and what time has run out, and asks what is to be
// done: a message to send (Due), an RDMA Read or an RDMA Write to post. It
// registers memory, and ends the exposure of what is no longer advertised.
//
// Read zcopy, the way of a Write that the peer fetches:
//
//	Source.Next            Offer: register the bytes, send the SrcAvail
//	Sink.SrcAvail          the peer has it; its program reads
//	Sink.Fetch, Fetched    RDMA Reads into the program's slice
//	Sink.Due               RdmaRdCompl for what has come
//	Source.RdCompl         those bytes are through
//
// Write zcopy, the way of a Read that the peer fills:
//
//	Sink.Offer, Due        the program's slice is advertised by a SinkAvail
//	Source.SinkAvail       the peer has it; its program writes
//	Source.Next            Fill: RDMA Writes, and behind them
//	Source.Filled, Due     RdmaWrCompl
//	Sink.WrCompl           the slice is filled
//
// Whatever goes neither way goes as Data.
//
// What the peer sends may be taken in at any time, and while a message of ours is
// on its way to the device too: all that is told of a message is told before it
// goes (Took, Sending, Offered), because the peer may be faster than the end of
// PostSend. What the device has not taken is taken back (Sent, Unoffer). Carry
// is the exception.
package zcopy
