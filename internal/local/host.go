package local

import (
	"net"

	"github.com/gosdp/gosdp/internal/meeting"
)

// OneHost reports whether conn is a TCP connection whose addresses say that its ends are on one host, in one
// network namespace.
func OneHost(conn net.Conn) bool {
	here, ok1 := conn.LocalAddr().(*net.TCPAddr)
	there, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return ok1 && ok2 && meeting.OneNamespace(here.AddrPort().Addr(), there.AddrPort().Addr())
}
