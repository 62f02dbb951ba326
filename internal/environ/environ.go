// Package environ reads the environment, which a program that has more rights than its caller
// ignores.
package environ

import (
	"os"
	"sync"
)

// Get returns a variable of the environment, and "" in a program that has more rights than
// its caller, who set the environment.
func Get(name string) string {
	if Secure() {
		return ""
	}
	return os.Getenv(name)
}

// Secure reports whether the program has more rights than its caller. Tests replace it.
var Secure = sync.OnceValue(privileged)
