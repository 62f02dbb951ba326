package adopt

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"regexp"
)

// Program describes how a program was built.
type Program struct {
	Go      string // the version of Go: "go1.26.8"
	SDP     bool   // its package net uses SDP
	Version string // of this module, if SDP
}

// marker begins the text that _std/net leaves in a program.
var marker = regexp.MustCompile(`sdp-go-build\{gosdp=([^;{}@]+);go=(go[^;{}@]+)\}`)

// ReadProgram returns how the program in a file was built. It fails if the file is not a Go
// program.
func ReadProgram(file string) (*Program, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &Program{Go: info.GoVersion}
	found, err := search(f)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if found != nil && found[2] == info.GoVersion {
		p.SDP, p.Version = true, found[1]
	}
	return p, nil
}

// search returns the marker and its parts, nil if there is none.
func search(r io.Reader) ([]string, error) {
	const overlap = 256 // longer than a marker
	b := make([]byte, 0, 1<<20)
	for {
		n, err := io.ReadFull(r, b[len(b):cap(b)])
		b = b[:len(b)+n]
		if m := marker.FindSubmatch(b); m != nil {
			return []string{string(m[0]), string(m[1]), string(m[2])}, nil
		}
		switch err {
		case nil:
			b = b[:copy(b, b[len(b)-overlap:])]
		case io.EOF, io.ErrUnexpectedEOF:
			return nil, nil
		default:
			return nil, err
		}
	}
}
