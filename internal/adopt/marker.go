package adopt

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// Program describes how a program was built.
type Program struct {
	Go      string // the version of Go: "go1.26.8", "go1.26.8-X:jsonv2"
	SDP     bool   // its package net uses SDP
	Version string // of this module, if SDP
}

// marker begins the text that _std/net leaves in a program.
var marker = regexp.MustCompile(`sdp-go-build\{gosdp=([^;{}@]+);go=(go[0-9a-z.]+)\}`)

// markerUser is the function that refers to the marker, as the runtime's table of functions has it.
var markerUser = []byte("\x00net.sdpReport\x00")

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
	// A program may contain the marker of another one that is embedded in it.
	if !hasFunction(f, markerUser) {
		return p, nil
	}
	if p.Version, err = search(f, release(info.GoVersion)); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	p.SDP = p.Version != ""
	return p, nil
}

// hasFunction reports whether a name is in a program's table of functions, which also programs without
// debug information and symbols have. Programs for Linux are in ELF.
func hasFunction(r io.ReaderAt, name []byte) bool {
	f, err := elf.NewFile(r)
	if err != nil {
		return false
	}
	for _, s := range f.Sections {
		if !strings.HasSuffix(s.Name, ".gopclntab") { // ".data.rel.ro.gopclntab" in some programs
			continue
		}
		if table, err := s.Data(); err == nil && bytes.Contains(table, name) {
			return true
		}
	}
	return false
}

// search returns the version of this module in the marker of a program that a release of Go has
// built, "" if there is none.
func search(r io.Reader, release string) (string, error) {
	const overlap = 256 // longer than a marker
	b := make([]byte, 0, 1<<20)
	for {
		n, err := io.ReadFull(r, b[len(b):cap(b)])
		b = b[:len(b)+n]
		for _, m := range marker.FindAllSubmatch(b, -1) {
			if string(m[2]) == release {
				return string(m[1]), nil
			}
		}
		switch err {
		case nil:
			b = b[:copy(b, b[len(b)-overlap:])]
		case io.EOF, io.ErrUnexpectedEOF:
			return "", nil
		default:
			return "", err
		}
	}
}
