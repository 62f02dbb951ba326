// Package netname has the names of networks, as programs give them, and puts them into errors as
// package net does.
package netname

import (
	"net"
	"slices"
)

// ID stands for the name that a program gave a network. It is a byte because every connection has
// one.
type ID uint8

// Unnamed is the ID of connections and listeners that the program has made without package sdp.
const Unnamed ID = 0

var names = [...]string{Unnamed: "", "tcp", "tcp4", "tcp6", "unix", "sdp", "sdp4", "sdp6"}

// Count is how many IDs there are.
const Count = len(names)

// Of returns the ID of a network's name, and Unnamed for an unknown one.
func Of(name string) ID { return ID(max(0, slices.Index(names[:], name))) }

// String returns the name.
func (id ID) String() string { return names[id] }

// OpError returns err as package net does, as a *net.OpError, with the name that the program
// gave the network. Addresses that are not known are nil.
func OpError(network, op string, source, addr net.Addr, err error) error {
	if inner, ok := err.(*net.OpError); ok {
		e := *inner
		e.Op, e.Net = op, network
		return &e
	}
	return &net.OpError{Op: op, Net: network, Source: source, Addr: addr, Err: err}
}

// Cause returns the error inside a *net.OpError, and any other error as it is.
func Cause(err error) error {
	if op, ok := err.(*net.OpError); ok {
		return op.Err
	}
	return err
}
