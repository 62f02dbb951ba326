// Package hook has the functions of package net that dial and listen use SDP
// instead of TCP. A program imports it for that effect alone.
//
// It needs a package net that test/swap has patched. The tool removes the build
// constraint sdpswap from the files that it compiles; without it the package is
// empty.
package hook
