//go:build !unix

package main

import "errors"

const exeSuffix = ".exe"

// replaceProcess fails: the system has no such call.
func replaceProcess(string, []string, []string) error { return errors.ErrUnsupported }
