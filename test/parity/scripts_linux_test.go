package parity

import "slices"

// linuxScripts are those that need a socket filter, a stopped process, /proc or getrusage.
func linuxScripts() []script {
	return slices.Concat(plainScripts, httpScripts, vanishScripts, stopScripts, dropScripts)
}
