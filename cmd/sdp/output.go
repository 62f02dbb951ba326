package main

import (
	"encoding/json"
	"os"
	"sync"
)

// stdout is where commands print. A command whose output is lost must not report success.
var stdout = &output{to: os.Stdout}

// An output keeps the first error of a file. It is safe for concurrent use.
type output struct {
	to *os.File

	mu  sync.Mutex
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// failed returns the first error.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// printJSON prints a value for programs to read.
func printJSON(v any) {
	e := json.NewEncoder(stdout)
	e.SetIndent("", "  ")
	e.Encode(v) // run reports what stdout meets
}
