// Package zcopy is zero copy: SDP's advertisements of memory (§9.2 to §9.5 of
// draft-pinkerton-iwarp-sdp-01), as protocol state without goroutine, lock,
// clock or I/O.
//
// This end does not advertise, and answers what the peer advertises by asking
// for it in Data messages, which the specification lets every sink do (§9.5.2).
package zcopy
