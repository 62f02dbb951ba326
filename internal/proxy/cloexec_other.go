//go:build !unix

package proxy

func closeOnExec(int) {}
