//go:build !unix

package proxy

const nonblocking = 0

func closeOnExec(int) {}

func descriptors() uint64 { return 0 }
