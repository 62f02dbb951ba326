// Package bcopy is the protocol state of SDP's buffer copy (§9.1 and §10 of
// draft-pinkerton-iwarp-sdp-01). A [Source] cuts a stream into Data messages that fit the
// peer's private buffers. A [Sink] joins the stream again from the private buffers that the
// peer has filled. Together they adapt the size of the buffers to what the program does.
//
// The package has no goroutine, lock, clock or I/O. Its owner carries out what it decides.
//
// Programs use package sdp. This package can be imported only because of the layout of the module, and promises
// no compatibility.
package bcopy
