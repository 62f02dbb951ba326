// Package faults subjects two processes under load to faults: they are stopped or killed,
// run short of descriptors, memory or processors, or their network loses packets or fails.
// In every case, delivered bytes must be right, calls must return, and nothing may leak.
package faults
