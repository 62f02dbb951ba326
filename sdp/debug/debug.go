// Package debug serves a page about the connections of package sdp in this process, as net/http/pprof
// serves its profiles. Importing it is enough for programs that serve
// [http.DefaultServeMux]:
//
//	import _ "github.com/gosdp/gosdp/sdp/debug"
//
// The page is at /debug/sdp. Other programs call [Handler]. The page shows addresses and traffic,
// so it must not be reachable by the public.
package debug

import (
	"crypto/rand"
	_ "embed"
	"net/http"
	"strings"

	"github.com/gosdp/gosdp/sdp"
)

//go:embed page.html
var page string

func init() {
	http.Handle("/debug/sdp", Handler())
}

// Handler returns a handler that serves the page or, for the query "?json", its contents as JSON.
// It may be registered for any path.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.URL.Query().Has("json") {
		h.Set("Content-Type", "application/json; charset=utf-8")
		sdp.WriteStatus(w) // an error means that the client has gone
		return
	}
	nonce := rand.Text()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "+
		"script-src 'nonce-"+nonce+"'; style-src 'nonce-"+nonce+"'")
	w.Write([]byte(strings.ReplaceAll(page, "NONCE", nonce)))
}
