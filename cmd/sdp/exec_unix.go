//go:build unix

package main

import "syscall"

const exeSuffix = ""

// replaceProcess replaces this process by a program.
func replaceProcess(path string, args, env []string) error { return syscall.Exec(path, args, env) }
