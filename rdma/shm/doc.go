// Package shm is the RDMA device for two programs on one Linux host. Messages go through shared
// memory, a byte ring for each direction. RDMA Reads and Writes use the kernel's cross-memory
// attach: the process that receives the bytes fetches them with process_vm_readv.
//
// The device is written in Go and needs no privilege. If a process is killed, nothing of it remains
// on the file system or elsewhere. Each end treats everything in the shared memory as untrusted: it
// reads it once, and checks it before use.
//
// On other systems the package is empty.
package shm
