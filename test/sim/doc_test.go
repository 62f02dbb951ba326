// Package sim simulates two connected ends without goroutines, clock or sockets. Two Sessions
// exchange real messages; they plan what each call does, as they do in package engine. Everything
// that can happen in different orders is drawn from one seed, so a failing seed fails again:
//
//	go test ./test/sim -run Seed -seed 17 -v
//
// What engine.Conn does during one hold of its lock is one action here, and anything may happen
// between two actions (end_test.go). The device delivers in order, but as late as it likes
// (device_test.go). Programs write, read, give up and close (program_test.go). world_test.go
// checks what must be true in the end.
package sim
