// Package rnics finds the network interfaces of this machine that belong to RDMA hardware.
// Software devices (rxe, siw) on ordinary interfaces do not count.
package rnics

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	system = "/sys"
	// freshTime is how long a result is used. Every Dial needs it, and interfaces change.
	freshTime = time.Second
)

var found struct {
	sync.Mutex
	at       time.Time
	networks []netip.Prefix
}

// Networks returns the addresses of the interfaces of RDMA hardware, each with the prefix length of
// its subnet. The result may be a second old, and must not be changed. Networks is safe for
// concurrent use.
func Networks() []netip.Prefix {
	found.Lock()
	defer found.Unlock()
	if now := time.Now(); found.at.IsZero() || now.Sub(found.at) > freshTime || now.Before(found.at) {
		found.networks, found.at = networks(system), now
	}
	return found.networks
}

// Owns reports whether one of the interfaces has the address a.
func Owns(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Addr() == a })
}

// Contain reports whether a is in one of the subnets.
func Contain(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// networks reads the sysfs at root.
func networks(root string) (all []netip.Prefix) {
	for _, name := range interfaces(root) {
		i, err := net.InterfaceByName(name)
		if err != nil {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok {
				ones, bits := n.Mask.Size()
				if ip, ok := netip.AddrFromSlice(n.IP); ok && (bits == 32 || !ip.Is4In6()) {
					all = append(all, netip.PrefixFrom(ip.Unmap(), ones))
				}
			}
		}
	}
	return all
}

// interfaces returns the names of the network interfaces of RDMA hardware, including VLANs and
// bonds.
func interfaces(root string) (names []string) {
	class := filepath.Join(root, "class/infiniband")
	devices, err := os.ReadDir(class)
	if err != nil {
		return nil // most machines
	}
	for _, d := range devices {
		at := filepath.Join(class, d.Name())
		if real, err := filepath.EvalSymlinks(at); err != nil || strings.Contains(real, "/devices/virtual/") {
			continue
		}
		own, _ := os.ReadDir(filepath.Join(at, "device/net"))
		for _, n := range own {
			names = append(names, n.Name())
		}
		of, _ := filepath.Glob(filepath.Join(at, "ports/*/gid_attrs/ndevs/*"))
		for _, file := range of {
			if name, err := os.ReadFile(file); err == nil { // an empty entry of the table cannot be read
				names = append(names, strings.TrimSpace(string(name)))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
