// Package nic is the part of the software RNIC that does no I/O: the table of registered regions,
// receive chunks that are lent to the program, the queue of outstanding RDMA Reads, and the
// back-pressure of the send queue.
package nic
