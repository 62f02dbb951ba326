package meeting

import "net/netip"

// OneNamespace reports whether the addresses of a TCP connection's ends say that both are on one host, in one
// network namespace. IPv4 addresses may be mapped.
func OneNamespace(a, b netip.Addr) bool {
	a, b = a.Unmap().WithZone(""), b.Unmap().WithZone("")
	return a == b || a.IsLoopback() && b.IsLoopback()
}
