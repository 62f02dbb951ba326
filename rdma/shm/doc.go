// Package shm is the RDMA device of two programs on one Linux host. Shared
// memory is its wire: messages go through a byte ring each way. The kernel's
// cross-memory attach is its RDMA engine: the process that receives the bytes
// of an RDMA Read or Write fetches them with process_vm_readv.
//
// It is written in Go, needs no privilege, and leaves nothing on the file system
// or anywhere else when a process is killed. Everything in the shared memory is
// a stranger's input to the other end: it is read once, and checked, before it
// is used.
//
// On other systems the package is empty.
package shm
