package adopt

import (
	"net/http"

	coder "github.com/coder/websocket"
	"github.com/gorilla/websocket"
	"github.com/gosdp/gosdp/sdp"
)

// Gorilla returns a dialler of gorilla/websocket that differs from [websocket.DefaultDialer] only in how
// it dials.
func Gorilla() *websocket.Dialer {
	dialer := *websocket.DefaultDialer
	dialer.NetDialContext = new(sdp.Dialer).DialContext
	return &dialer
}

// Coder returns options of coder/websocket, which dials with an HTTP client.
func Coder() *coder.DialOptions {
	return &coder.DialOptions{HTTPClient: &http.Client{Transport: Transport()}}
}
