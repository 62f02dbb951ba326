// Package verbs is the device for RDMA hardware (InfiniBand, RoCE, iWARP), and for the kernel's
// software devices rxe and siw, through libibverbs and librdmacm. A program enables it with
//
//	import _ "github.com/gosdp/gosdp/rdma/verbs"
//
// The package is experimental: it is tested over rxe and siw, and not on hardware. docs/verbs.md
// says how to try it there.
//
// It needs Linux and cgo; built without either, the package registers nothing. It neither links the
// two libraries nor needs their headers: it opens them when the device is first needed. If they are
// missing, there is no such device.
//
// The files follow a connection. device.go finds out whether there is any hardware. accept.go and
// join.go connect two ends with rdma_cm; events.go distributes its events, and dispatch.go handles
// those that take long; listeners.go replaces listeners whose device was removed. qp.go is the
// queue pair, send.go and receive.go its two directions; ring.go and slab.go have the memory for them,
// and fill.go gives some of it back. reap.go handles completions, wait.go
// parks, and memory.go registers memory. shim.c calls the libraries.
package verbs
