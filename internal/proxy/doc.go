// Package proxy relays connections between TCP and package sdp, for programs that cannot import a
// Go package. "sdp proxy" runs it.
//
// A connection passes through the files in this order:
//
//  1. config.go and parse.go describe the routes: where to listen and where to dial.
//  2. entrance.go accepts a connection on a route's listener.
//  3. original_linux.go finds the original destination of a redirected connection.
//  4. relay.go dials the target and copies both directions until they have ended.
//
// proxy.go owns the routes: it starts them, replaces them on a reload, and ends them.
// activation.go communicates with systemd, and endpoints.go serves readiness and metrics.
package proxy
