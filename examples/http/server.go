package main

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/gosdp/gosdp/examples/internal/process"
)

// serve runs the server process. It serves dir at host until the parent ends it.
func serve(s stack, host, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	listener, err := s.listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: fileHandler(root)}
	process.Announce(listener.Addr(), func() { server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// fileHandler serves the files below root under their own names. It does not use
// http.FileServer, which redirects index.html to its directory.
func fileHandler(root *os.Root) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, err := root.Open(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil || !info.Mode().IsRegular() {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, info.Name(), info.ModTime(), file)
	})
}
