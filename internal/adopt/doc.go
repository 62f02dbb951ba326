// Package adopt makes a second GOROOT whose package net uses SDP, so that any program that its go
// command builds uses SDP. docs/adoption.md describes the design.
//
// The files are in the order of the work:
//
//  1. toolchain.go asks the go command which GOROOT it would use, and checks that the version
//     of Go is supported.
//  2. goroot.go finds the second GOROOT, or makes it: links to the files of the first, and the
//     files that differ.
//  3. library.go writes the library below src/internal/gosdp, with its own copy of package
//     net.
//  4. patch.go and edits.go change package net.
//  5. marker.go finds out whether a program was built in this way.
package adopt
