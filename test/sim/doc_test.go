// Package sim runs the protocol of two connected ends without goroutine, clock
// or socket: two Sessions, which decide what is sent and what it means as they do in
// sdp.Conn, with real messages between them. Everything that could happen in one order or another is
// drawn from one seed, so a seed that fails fails again:
//
//	go test ./test/sim -run Seed -seed 17 -v
//
// What sdp.Conn does under one hold of its lock is one action here, and between two of them
// anything may happen (end_test.go). The device delivers in order, but as late as it likes
// (device_test.go). Programs write, read, lose patience and close
// (program_test.go). What must be true in the end is in world_test.go.
package sim
