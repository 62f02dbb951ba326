//go:build unix

package proxy

import "syscall"

func closeOnExec(fd int) { syscall.CloseOnExec(fd) }
