package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/programs"
)

func TestMain(m *testing.M) { programs.Main(m, "-serve", main) }

func TestEveryLoadOverEveryDevice(t *testing.T) {
	o := options{devices: "shm,iwarp,absent", host: "localhost", turn: time.Millisecond, bytes: 3<<20 + 1, zcopy: 64 << 10}
	var out bytes.Buffer
	require.NoError(t, o.run(&out))
	text := out.String()
	require.Contains(t, text, `Without device "absent"`)
	for _, l := range loads {
		require.Regexp(t, `(?m)^ *`+regexp.QuoteMeta(l.name)+` +\d.*\d+\.\d× .*\d+\.\d× *$`, text, "the rates")
		for _, device := range []string{"shm", "iwarp"} {
			require.Regexp(t, `(?m)^ *`+regexp.QuoteMeta(l.name)+` +`+device+` +[0-9.]+ +\d+`, text, "the counters")
		}
	}
	// How much of the transfer goes by RDMA depends on when the reader waits.
	counted := regexp.MustCompile(`(?m)^ *transfer +iwarp +0\.0 +\d+ +\d+ +([0-9.]+) +([0-9.]+) `).FindStringSubmatch(text)
	require.NotNil(t, counted, text)
	var copied, byRDMA float64
	_, err := fmt.Sscan(counted[1]+" "+counted[2], &copied, &byRDMA)
	require.NoError(t, err)
	require.InDelta(t, 3*float64(o.bytes)/1e6, copied+byRDMA, 0.2)
}

// TestServerThatFailsIsReported: nothing can listen at an address of another host.
func TestServerThatFailsIsReported(t *testing.T) {
	o := options{devices: "iwarp", host: "192.0.2.1", turn: time.Millisecond}
	require.Error(t, o.run(io.Discard))
}

// corrupt changes the last byte of each longer Read.
type corrupt struct{ net.Conn }

func (c corrupt) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 8 {
		b[n-1] ^= 1
	}
	return n, err
}

type corruptListener struct{ net.Listener }

func (l corruptListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return corrupt{conn}, err
}

// TestDifferentByteIsReported: the client compares echoes and responses, the server the
// transfer.
func TestDifferentByteIsReported(t *testing.T) {
	for _, l := range loads {
		t.Run(l.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "localhost:0")
			require.NoError(t, err)
			defer ln.Close()
			conn, err := net.Dial("tcp", ln.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			if l.name == "transfer" {
				go l.serve(corruptListener{ln})
			} else {
				go l.serve(ln)
				conn = corrupt{conn}
			}
			c := client{options: options{turn: time.Hour, bytes: 100}, conn: conn}
			c.http.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
			_, err = l.turn(&c)
			require.ErrorIs(t, err, errDiffers)
		})
	}
}
