package drivers

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

const largestMessage = 4 << 20

// echoMessages is a websocket server that echoes every message.
func echoMessages(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer c.CloseNow()
	c.SetReadLimit(largestMessage)
	for {
		kind, message, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

func TestWebsocket(t *testing.T) {
	listener, err := sdp.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(echoMessages)}}
	server.Start()
	defer server.Close()

	d := newDialer()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = d.DialContext
	options := &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			c, _, err := websocket.Dial(ctx, "ws://"+listener.Addr().String(), options)
			if !assert.NoError(t, err) {
				return
			}
			defer c.CloseNow()
			c.SetReadLimit(largestMessage)
			for _, size := range []int{0, 1, 125, 126, 65_535, 65_536, 1 << 20, largestMessage} {
				message := make([]byte, size)
				rand.NewChaCha8([32]byte{byte(size)}).Read(message)
				assert.NoError(t, c.Write(ctx, websocket.MessageBinary, message))
				kind, back, err := c.Read(ctx)
				assert.NoError(t, err)
				assert.Equal(t, websocket.MessageBinary, kind)
				assert.True(t, bytes.Equal(message, back), "%d bytes", size)
			}
			reading := c.CloseRead(ctx) // Ping needs a concurrent reader for its answer
			assert.NoError(t, c.Ping(ctx))
			assert.NoError(t, c.Close(websocket.StatusNormalClosure, "done"))
			<-reading.Done()
		})
	}
	clients.Wait()
	require.Len(t, d.dialled(t), 4)
}
