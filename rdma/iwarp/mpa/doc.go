// Package mpa is MPA (RFC 5044) with revision 2 (RFC 6581): the negotiation at the start of a
// connection, and the frames (FPDUs) in which it carries the segments of DDP after that. It turns
// bytes into meaning and meaning into bytes, and does no I/O.
//
//	initiator                                 responder
//	Initiate                                  Request.Receive, until the Request is whole
//	Initiator.Receive, until the Reply is     Request.Accept or Request.Reject
//	Initiator.Agreed
//
// Receive takes all that has arrived so far and says how many bytes are missing, so a caller never
// reads a byte of the first FPDU. frame.go has the rules by which a Request or Reply is refused.
package mpa
