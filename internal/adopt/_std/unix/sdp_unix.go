// This file is not part of golang.org/x/sys/unix. "sdp go" has added it.

package unix

import "unsafe"

// anyToSockaddr knows only the addresses that the library sees. With the others, every program
// would be larger.
func anyToSockaddr(fd int, rsa *RawSockaddrAny) (Sockaddr, error) {
	switch rsa.Addr.Family {
	case AF_NETLINK:
		p := (*RawSockaddrNetlink)(unsafe.Pointer(rsa))
		return &SockaddrNetlink{Family: p.Family, Pad: p.Pad, Pid: p.Pid, Groups: p.Groups}, nil
	case AF_UNIX:
		p := (*RawSockaddrUnix)(unsafe.Pointer(rsa))
		path := *(*[len(p.Path)]byte)(unsafe.Pointer(&p.Path))
		if path[0] == 0 {
			path[0] = '@' // an abstract name, which ends at the first 0
		}
		n := 0
		for n < len(path) && path[n] != 0 {
			n++
		}
		return &SockaddrUnix{Name: string(path[:n])}, nil
	case AF_INET:
		p := (*RawSockaddrInet4)(unsafe.Pointer(rsa))
		return &SockaddrInet4{Port: int(p.Port<<8 | p.Port>>8), Addr: p.Addr}, nil
	case AF_INET6:
		p := (*RawSockaddrInet6)(unsafe.Pointer(rsa))
		return &SockaddrInet6{Port: int(p.Port<<8 | p.Port>>8), ZoneId: p.Scope_id, Addr: p.Addr}, nil
	}
	return nil, EAFNOSUPPORT
}
