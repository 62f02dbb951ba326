// Package verbs is the device of real RDMA hardware (InfiniBand, RoCE, iWARP),
// and of the kernel's software devices rxe and siw, through libibverbs and
// librdmacm. A program takes it in with
//
//	import _ "github.com/gosdp/gosdp/rdma/verbs"
//
// It needs Linux and cgo; built without either, the package registers nothing.
// It does not link the two libraries, nor need their headers: they are opened
// when the device is first asked for, and where they are missing there is no such
// device.
//
// The files follow a connection: device.go finds out whether there is any
// hardware, place.go and join.go bring two ends together with rdma_cm, whose
// events engine.go hands out, what is slow of that to dispatch.go; listeners.go
// replaces listeners whose device is removed; qp.go is the queue pair, send.go and
// receive.go its two directions, reap.go takes completions apart, wait.go parks, and
// memory.go registers. shim.c has the calls into the libraries.
package verbs
