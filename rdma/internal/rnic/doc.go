// Package rnic holds what the devices have in common: the table of registered regions,
// receive chunks that are lent to the program, the queue of outstanding RDMA Reads, and the
// back-pressure of a send queue. libfabric's prov/util has the same purpose.
//
// A device adds the rest, such as its wire format and how it parks.
package rnic
