package sdp

import (
	"io"
	"testing"

	"github.com/gosdp/gosdp/sdp/stats"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// meter is a program's wrapper of a connection, which counts what it reads from others.
type meter struct {
	*Conn
	n int64
}

func (m *meter) ReadFrom(r io.Reader) (int64, error) {
	n, err := m.Conn.ReadFrom(r)
	m.n += n
	return n, err
}

// TestWriteToCallsTheReadFromOfAWrapper, over RDMA and on one host, and writes to a connection of this library itself.
func TestWriteToCallsTheReadFromOfAWrapper(t *testing.T) {
	for name, ends := range map[string]func() (c, s *Conn, err error){
		"iwarp": dialled,
		"local": func() (c, s *Conn, err error) { return localEnds("tcp", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			var counted int64
			for _, wrapped := range []bool{true, false} {
				from, to := connected(t, ends)
				target, peer := connected(t, ends)
				_, err := from.Write([]byte("hello"))
				require.NoError(t, err)
				require.NoError(t, from.CloseWrite())
				m := &meter{Conn: target}
				var w io.Writer = target
				if wrapped {
					w = m
				}
				n, err := to.WriteTo(w)
				require.NoError(t, err)
				require.EqualValues(t, 5, n)
				require.NoError(t, target.CloseWrite())
				got, err := io.ReadAll(peer)
				require.NoError(t, err)
				assert.Equal(t, "hello", string(got))
				counted += m.n
			}
			assert.EqualValues(t, 5, counted)
		})
	}
}

func connected(t *testing.T, ends func() (c, s *Conn, err error)) (c, s *Conn) {
	c, s, err := ends()
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return c, s
}

func TestNoDialHook(t *testing.T) {
	called := false
	ctx := WithDialHook(t.Context(), func(stats.Dial) { called = true })
	c, err := new(Dialer).DialContext(WithDialHook(ctx, nil), "unix", t.TempDir()+"/none")
	assert.Nil(t, c)
	assert.Error(t, err)
	assert.True(t, called)
}
