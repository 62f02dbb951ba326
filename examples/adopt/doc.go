// Package adopt has a recipe for each kind of client and server that adopts SDP. Copy what you
// need. The recipes change nothing but how a connection is made: TLS, proxies, time limits,
// protocols and keep-alives stay those of the library's default client, unless the recipe names an
// exception. The tests run the same script over both.
//
// A server needs only a listener of [sdp.Listen] in place of one of package net: see the examples.
package adopt
