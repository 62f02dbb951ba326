// Package zcopy is the protocol state of SDP's zero copy (§9.2 to §9.5, §11 and §12 of
// draft-pinkerton-iwarp-sdp-01): advertisements of memory, and what happens to them. It has
// no goroutine, lock, clock or I/O.
//
// Each end of a connection has a [Source] for the direction in which it sends, and a [Sink]
// for the one in which it receives. Their owner tells them what was received, what the
// program wants and which time limits have passed. It asks what to do next: a message to send
// (Due), an RDMA Read or an RDMA Write to post. The owner registers memory, and invalidates
// what is no longer advertised.
//
// Read zcopy: the peer fetches the bytes of a Write.
//
//	Source.Next            Offer: register the bytes, send the SrcAvail
//	Sink.SrcAvail          it arrives at the peer, whose program reads
//	Sink.Fetch, Fetched    RDMA Reads into the program's slice
//	Sink.Due               RdmaRdCompl for what was fetched
//	Source.RdCompl         those bytes are done
//
// Write zcopy: the peer fills the slice of a Read.
//
//	Sink.Offer, Due        the program's slice is advertised by a SinkAvail
//	Source.SinkAvail       it arrives at the peer, whose program writes
//	Source.Next            Fill: RDMA Writes, part by part
//	Source.Filled, Due     RdmaWrCompl after the last of them
//	Sink.WrCompl           the slice is filled
//
// Everything else is sent as Data.
//
// Messages from the peer may be received at any time, even while the device is accepting a
// message of this end. The owner therefore reports a message before it posts it (Took, Sending,
// Offered), because the peer may answer before PostSend returns. If the device did not accept
// it, the owner reverses the report (Sent, Unoffer). Carry is the exception.
//
// Programs use package sdp. This package can be imported only because of the layout of the module, and promises
// no compatibility.
package zcopy
