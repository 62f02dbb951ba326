package sdp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDroppedConnectionsAreClosed by the garbage collector: the peer reads an end, and
// nothing of them is left.
func TestDroppedConnectionsAreClosed(t *testing.T) {
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	before := Stats().Open
	const many = 50
	peers := make([]net.Conn, many)
	for i := range peers {
		var c net.Conn
		c, peers[i], err = bothEnds(ln, engineDial)
		require.NoError(t, err)
		_, err = c.Write([]byte("last words"))
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Hour)))
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return Stats().Open <= before+many
	}, soon, 10*time.Millisecond)
	for _, c := range peers {
		require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
		got, err := io.ReadAll(c)
		assert.NoError(t, err)
		assert.Equal(t, "last words", string(got))
		assert.NoError(t, c.Close())
	}
	assert.Equal(t, before, Stats().Open)
}

// TestDroppedListenersAreClosed: a listener that becomes unreachable stops listening.
func TestDroppedListenersAreClosed(t *testing.T) {
	var addresses []string
	for range 10 {
		ln, err := Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		addresses = append(addresses, ln.Addr().String())
	}
	for _, address := range addresses {
		assert.Eventually(t, func() bool {
			runtime.GC()
			c, err := net.Dial("tcp", address)
			if err == nil {
				c.Close()
			}
			return err != nil
		}, soon, 10*time.Millisecond)
	}
}

// TestEveryMethodKeepsTheConnection until it returns, and has all methods of the carrier except for those that
// are for operators.
func TestEveryMethodKeepsTheConnection(t *testing.T) {
	source, err := os.ReadFile("conn.go")
	require.NoError(t, err)
	file, err := parser.ParseFile(token.NewFileSet(), "conn.go", source, 0)
	require.NoError(t, err)
	keeps := make(map[string]bool)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			continue
		}
		if of, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok && of.X.(*ast.Ident).Name == "Conn" {
			body := string(source[f.Body.Pos()-1 : f.Body.End()-1])
			keeps[f.Name.Name] = strings.Contains(body, "runtime.KeepAlive(c)") || strings.Contains(body, "rawConn{raw, c}")
		}
	}
	of := reflect.TypeFor[carrier]()
	for i := range of.NumMethod() {
		name := of.Method(i).Name
		keep, there := keeps[name]
		if name == "Record" || name == "Describe" || name == "Dumped" {
			assert.False(t, there, "Conn has a method %s", name)
			continue
		}
		assert.True(t, there, "Conn has no method %s of its own", name)
		if name != "LocalAddr" && name != "RemoteAddr" { // which do not wait, nor need the connection
			assert.True(t, keep, "Conn.%s does not keep the Conn", name)
		}
	}
}
