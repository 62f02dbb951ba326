// Package faults has what happens to programs and networks happen to two
// processes under load: they are stopped, killed, short of descriptors, memory or
// processors, their network loses packets or is cut. Whatever it is, every byte
// that is delivered is the right one, every call returns, and nothing is left
// behind.
package faults
