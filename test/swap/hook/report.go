//go:build sdpswap

package hook

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/gosdp/gosdp/sdp"
)

const reportVariable = "SDP_SWAP_REPORT"

// reporting is a listener that reports the connections that it accepts.
type reporting struct{ *sdp.Listener }

func (l reporting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		report("accept", c)
	}
	return c, err
}

// report appends a line about a new connection to the file named by SDP_SWAP_REPORT, if any.
// Each line is a single write, so lines of several processes do not mix.
func report(role string, c net.Conn) {
	name := os.Getenv(reportVariable)
	if name == "" {
		return
	}
	device := "tcp"
	if c, ok := c.(*sdp.Conn); ok {
		device = c.Device()
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s %d %s %s\n", filepath.Base(os.Args[0]), os.Getpid(), role, device)
		f.Close()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", reportVariable, err)
	}
}
