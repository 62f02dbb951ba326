// Package lockorder has a mutex that checks the order in which locks are taken.
//
// Each [Mutex] belongs to a class: all locks that have the same place in the program. Two goroutines
// can wait for each other forever if one takes a lock of class A and then one of class B, and the
// other takes them in the opposite order. Tests seldom run into that moment. Built with the tag
// lockorder, a Mutex finds the two orders even if they occur an hour apart: it records for each
// goroutine the locks that it holds, and panics when it takes one against the order that is
// documented in order.go, or against one that has occurred before. Without the tag it is a
// sync.Mutex.
//
// A TryLock cannot wait, and may be called in any order.
package lockorder
