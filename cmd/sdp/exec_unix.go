//go:build unix

package main

import "syscall"

const exeSuffix = ""

// replaceProcess runs a program in place of this one.
func replaceProcess(path string, args, env []string) error { return syscall.Exec(path, args, env) }
