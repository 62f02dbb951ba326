// Package hook makes the dial and listen functions of package net use SDP instead of TCP. A
// program imports it for this side effect.
//
// It requires a package net that test/swap has patched. In ordinary builds, the constraint
// sdpswap makes this package empty. test/swap removes the constraint from the files that it
// compiles.
package hook
