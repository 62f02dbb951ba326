// Package bcopy is buffer copy, the way of SDP's small messages (§9.1 and §10 of
// draft-pinkerton-iwarp-sdp-01): a [Source] cuts a stream into Data messages
// that fit the peer's private buffers, a [Sink] puts the stream together again
// from the private buffers that the peer has filled, and the two together keep
// the buffers' size right for what the program does.
//
// It is protocol state only: no goroutine, no lock, no clock, no I/O. Its owner
// carries out what it decides.
package bcopy
