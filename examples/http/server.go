package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// serve is the server process. It announces its address on out and serves dir
// until in ends, which happens when the parent closes it and when the parent
// dies.
func serve(s stack, dir string, in io.Reader, out io.Writer) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	listener, err := s.listen("tcp", "localhost:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: fileHandler(root)}
	go func() {
		io.Copy(io.Discard, in)
		server.Close()
	}()
	fmt.Fprintln(out, listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// fileHandler serves the files below root under their own names. It is not
// http.FileServer because that redirects index.html to its directory.
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
