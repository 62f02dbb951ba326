package adopt

import (
	"context"
	"crypto/tls"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

// transport returns the default transport or the recipe's.
func transport(t *testing.T, recipe bool) *http.Transport {
	tr := http.DefaultTransport.(*http.Transport).Clone()
	if recipe {
		tr = Transport()
	}
	tr.TLSClientConfig = clientTLS(t)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// httpServer serves both protocols of HTTP, or WebSocket, over TLS if secure is set.
func httpServer(t *testing.T, secure bool, handler http.Handler) (*httptest.Server, *server) {
	s := &server{}
	ts := httptest.NewUnstartedServer(handler)
	ts.Config.ErrorLog = log.New(io.Discard, "", 0)
	ts.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateActive {
			s.sawSocket(t, conn)
		}
	}
	ts.EnableHTTP2 = true
	if secure {
		identity, _ := identities()
		config, err := identity.Config()
		require.NoError(t, err)
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			s.saw("TLS for %q, protocols %q", hello.ServerName, hello.SupportedProtos)
			return nil, nil
		}
		ts.TLS = config
		ts.StartTLS()
	} else {
		ts.Start()
	}
	t.Cleanup(ts.Close)
	return ts, s
}

func TestHTTP(t *testing.T) {
	script(func(t *testing.T, recipe bool) (saw []string) {
		client := &http.Client{Transport: transport(t, recipe)}
		get := func(ctx context.Context, url string) string {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			require.NoError(t, err)
			response, err := client.Do(request)
			if err != nil {
				return outcome(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			return fmt.Sprintf("%s %s %s %s", response.Proto, response.Status, body, outcome(err))
		}
		ctx := watched(t)
		for _, secure := range []bool{false, true} {
			const parallel = 10
			var all sync.WaitGroup
			handler := func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/together" {
					all.Done()
					all.Wait()
				}
				if r.TLS != nil {
					fmt.Fprint(w, r.TLS.PeerCertificates[0].Subject)
				}
			}
			ts, s := httpServer(t, secure, http.HandlerFunc(handler))
			saw = append(saw, get(ctx, ts.URL))
			all.Add(parallel)
			var done sync.WaitGroup
			for range parallel {
				done.Go(func() { get(ctx, ts.URL+"/together") })
			}
			done.Wait()
			ts.Close()
			saw = append(saw, s.all()...)
		}
		saw = append(saw, get(ctx, "http://server.example/a"), get(ctx, "https://server.example/b"))
		saw = append(saw, proxied()...)
		saw = append(saw, get(ctx, "http://"+refused(t)))
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		return append(saw, get(short, "http://"+stalled(t)))
	}).same(t)
}

// TestTransport compares the fields.
func TestTransport(t *testing.T) {
	want := reflect.ValueOf(http.DefaultTransport.(*http.Transport)).Elem()
	got := reflect.ValueOf(Transport()).Elem()
	for i := range want.NumField() {
		field := want.Type().Field(i)
		if !field.IsExported() || field.Name == "DialContext" || field.Name == "TLSNextProto" { // which the first request sets
			continue
		}
		switch field.Type.Kind() {
		case reflect.Func, reflect.Pointer:
			require.Equal(t, want.Field(i).IsNil(), got.Field(i).IsNil(), field.Name)
		default:
			require.Equal(t, want.Field(i).Interface(), got.Field(i).Interface(), field.Name)
		}
	}
}

// TestDefaultDialler: the default transport does not reveal the times of its dialler, and nobody waits for 30 seconds to
// see one. They are in the source.
func TestDefaultDialler(t *testing.T) {
	library, err := build.Import("net/http", "", build.FindOnly)
	require.NoError(t, err)
	file := filepath.Join(library.Dir, "transport.go")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Skip("missing: the sources of package net/http: ", err)
	}
	times := func(name string, text []byte) (found []string) {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok {
				if typ, ok := lit.Type.(*ast.SelectorExpr); ok && typ.Sel.Name == "Dialer" {
					if x, ok := typ.X.(*ast.Ident); ok && x.Name == "net" {
						for _, e := range lit.Elts {
							field := e.(*ast.KeyValueExpr)
							found = append(found, fmt.Sprintf("%s: %s", field.Key, text[field.Value.Pos()-1:field.Value.End()-1]))
						}
					}
				}
			}
			return true
		})
		return found
	}
	recipe, err := os.ReadFile("http.go")
	require.NoError(t, err)
	want := times(file, text)
	require.NotEmpty(t, want)
	require.Equal(t, want, times("http.go", recipe))
}

// TestReadme: the client in README is the recipe.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	recipe, err := os.ReadFile("http.go")
	require.NoError(t, err)
	_, body, _ := strings.Cut(string(recipe), "func Transport() *http.Transport {\n")
	body, _, found := strings.Cut(body, "\treturn transport\n")
	require.True(t, found)
	require.Contains(t, string(readme), strings.ReplaceAll("\n"+body, "\n\t", "\n"))
}

// echo is a WebSocket server.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	if kind, message, err := conn.ReadMessage(); err == nil {
		conn.WriteMessage(kind, message)
	}
}

func TestGorilla(t *testing.T) {
	script(func(t *testing.T, recipe bool) (saw []string) {
		ctx := watched(t)
		dialer := *websocket.DefaultDialer
		if recipe {
			dialer = *Gorilla()
		}
		saw = append(saw, fmt.Sprint(dialer.HandshakeTimeout, dialer.Proxy != nil))
		dialer.TLSClientConfig = clientTLS(t)
		dial := func(url string) string {
			conn, _, err := dialer.DialContext(ctx, url, nil)
			if err != nil {
				return outcome(err)
			}
			defer conn.Close()
			require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte("hello")))
			_, message, err := conn.ReadMessage()
			return fmt.Sprintf("%s %s", message, outcome(err))
		}
		for _, secure := range []bool{false, true} {
			ts, s := httpServer(t, secure, http.HandlerFunc(echo))
			saw = append(saw, dial("ws"+ts.URL[len("http"):]))
			ts.Close()
			saw = append(saw, s.all()...)
		}
		saw = append(saw, dial("ws://server.example/a"), dial("wss://server.example/b"))
		saw = append(saw, proxied()...)
		saw = append(saw, dial("ws://"+refused(t)))
		dialer.HandshakeTimeout = 100 * time.Millisecond
		return append(saw, dial("ws://"+stalled(t)))
	}).same(t)
}

func TestCoder(t *testing.T) {
	script(func(t *testing.T, recipe bool) (saw []string) {
		ctx := watched(t)
		options := &coder.DialOptions{HTTPClient: http.DefaultClient}
		if recipe {
			options = Coder()
		}
		dial := func(ctx context.Context, url string) string {
			conn, _, err := coder.Dial(ctx, url, options)
			if err != nil {
				return outcome(err)
			}
			defer conn.CloseNow()
			require.NoError(t, conn.Write(ctx, coder.MessageText, []byte("hello")))
			_, message, err := conn.Read(ctx)
			return fmt.Sprintf("%s %s", message, outcome(err))
		}
		ts, s := httpServer(t, false, http.HandlerFunc(echo))
		saw = append(saw, dial(ctx, ts.URL))
		ts.Close()
		saw = append(saw, s.all()...)
		saw = append(saw, dial(ctx, "ws://server.example/a"), dial(ctx, "wss://server.example/b"))
		saw = append(saw, proxied()...)
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		return append(saw, dial(short, "ws://"+stalled(t)))
	}).same(t)
}

// A server needs another listener and nothing else.
func Example_httpServer() {
	listener, err := sdp.Listen("tcp", "127.0.0.1:0") // was net.Listen
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			fmt.Printf("a client came over a %T\n", conn)
			return ctx
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }),
	}
	go server.Serve(listener)
	defer server.Close()

	client := &http.Client{Transport: Transport()}
	response, err := client.Get("http://" + listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	fmt.Println(string(body), err)
	// Output:
	// a client came over a *sdp.Conn
	// hello <nil>
}
