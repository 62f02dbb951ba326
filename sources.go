// Package gosdp holds the sources of the library, for the command sdp, which builds them
// into the standard library of the programs that it makes. Programs import package
// github.com/gosdp/gosdp/sdp.
package gosdp

import "embed"

// Sources are the directories of this module that package sdp and the devices are in.
//
//go:embed bcopy credits internal listener rdma sdp wire zcopy
var Sources embed.FS
