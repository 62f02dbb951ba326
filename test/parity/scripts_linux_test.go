package parity

import "slices"

// linuxScripts are scripts that need a socket filter, stopped processes, /proc or getrusage.
func linuxScripts() []script {
	return slices.Concat(plainScripts, httpScripts, vanishScripts, stopScripts, dropScripts, faultScripts)
}
