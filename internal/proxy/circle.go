package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// CheckCircles returns an error if a connection to one of the routes would come back to that route, directly or through
// others. It resolves the names of hosts until ctx is done, and knows nothing of inherited sockets, redirected
// connections and other proxies.
func CheckCircles(ctx context.Context, file string, routes []Route) error {
	return circles{own: ownAddresses(), lookup: func(host string) []netip.Addr {
		found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host) // a name that is not known yet leads nowhere
		return found
	}}.check(file, routes)
}

type circles struct {
	own    []netip.Addr // of this machine
	lookup func(host string) []netip.Addr
}

func (c circles) check(file string, routes []Route) error {
	const (
		unseen = iota
		onPath
		done
	)
	state := make([]int, len(routes))
	var path []int
	var visit func(i int) error
	visit = func(i int) error {
		state[i] = onPath
		path = append(path, i)
		for j := range routes {
			if !c.reaches(routes[i].Dial, routes[j].Listen) {
				continue
			}
			if state[j] == onPath {
				return circleError(file, routes, path[slices.Index(path, j):])
			}
			if state[j] == unseen {
				if err := visit(j); err != nil {
					return err
				}
			}
		}
		path = path[:len(path)-1]
		state[i] = done
		return nil
	}
	for i := range routes {
		if state[i] == unseen {
			if err := visit(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// circleError names the routes of a circle, in the order in which a connection takes them.
func circleError(file string, routes []Route, circle []int) error {
	var steps []string
	for _, i := range circle {
		steps = append(steps, routes[i].Listen.String()+" dials "+routes[i].Dial.String())
	}
	err := errors.New("routes lead in a circle: " + strings.Join(steps, ", "))
	if line := routes[circle[0]].Line; line > 0 {
		return &LineError{file, line, err}
	}
	return err
}

// reaches reports whether a connection that is dialled to one endpoint comes to a listener at the other.
func (c circles) reaches(dial, listen Endpoint) bool {
	if _, inherited := listen.inherited(); inherited || dial.original() {
		return false
	}
	to, toPort := c.addresses(dial)
	at, port := c.addresses(listen)
	if toPort == 0 || toPort != port { // 0: the kernel chooses a port
		return false
	}
	return slices.ContainsFunc(to, func(a netip.Addr) bool {
		if a.IsUnspecified() {
			a = netip.AddrFrom4([4]byte{127, 0, 0, 1}) // where the kernel connects to
		}
		return slices.ContainsFunc(at, func(b netip.Addr) bool {
			return a == b || b.IsUnspecified() && (b.Is6() || a.Is4()) && (a.IsLoopback() || slices.Contains(c.own, a))
		})
	})
}

// addresses returns the addresses and the port of an endpoint. A listener without a host has all addresses.
func (c circles) addresses(e Endpoint) (hosts []netip.Addr, port int) {
	host, service, err := net.SplitHostPort(e.Address)
	if err != nil {
		return nil, 0
	}
	if port, err = net.LookupPort("tcp", service); err != nil {
		return nil, 0
	}
	if host == "" {
		return []netip.Addr{netip.IPv6Unspecified()}, port
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap().WithZone("")}, port
	}
	for _, a := range c.lookup(host) {
		hosts = append(hosts, a.Unmap().WithZone(""))
	}
	return hosts, port
}

// ownAddresses returns the addresses of this machine's interfaces.
func ownAddresses() (all []netip.Addr) {
	found, _ := net.InterfaceAddrs()
	for _, a := range found {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p.Addr().Unmap().WithZone(""))
		}
	}
	return all
}
