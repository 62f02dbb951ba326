// This file is not part of golang.org/x/sys/unix. "sdp go" has added it.

package unix

import "unsafe"

// anyToSockaddr knows only the addresses that the library sees. With the others, every program
// would be larger.
func anyToSockaddr(fd int, rsa *RawSockaddrAny) (Sockaddr, error) {
	if rsa.Addr.Family != AF_UNIX {
		return nil, EAFNOSUPPORT
	}
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
}
