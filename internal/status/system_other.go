//go:build !unix

package status

import "os"

// Owner returns the user to whom a file belongs.
func Owner(os.FileInfo) (uid int, ok bool) { return -1, false }

// Alive reports whether there is a process with this number.
func Alive(int) bool { return true }
