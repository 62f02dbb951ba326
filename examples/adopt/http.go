package adopt

import (
	"net"
	"net/http"
	"time"

	"github.com/gosdp/gosdp/sdp"
)

// Transport returns a transport that differs from [http.DefaultTransport] only in its dialler. The
// dialler has the times of that transport's own.
func Transport() *http.Transport {
	dialer := &sdp.Dialer{NetDialer: &net.Dialer{
		Timeout:   30 * time.Second,
		KeepAlive: 30 * time.Second,
	}}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = dialer.DialContext
	return transport
}
