package handshake

import (
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/sysfile"
)

// readHost combines the kernel's boot id with the network namespace, because two containers
// on one kernel are two hosts to each other.
func readHost() string {
	boot, err := sysfile.Read("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	network, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return ""
	}
	return boot + "\x00" + network
}

// tos returns the type of service or the traffic class of a TCP connection. It is 0 if conn is not
// one, or if the program has wrapped it.
func tos(conn net.Conn) (tos uint8) {
	control(conn, func(fd int) {
		level, option := unix.IPPROTO_IP, unix.IP_TOS
		if addr := addrPort(conn.RemoteAddr()).Addr(); addr.Is6() && !addr.Is4In6() {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
		}
		if v, err := unix.GetsockoptInt(fd, level, option); err == nil {
			tos = uint8(v)
		}
	})
	return tos
}

// sinceArrival returns how long ago bytes last arrived on conn, whether or not they were read. It
// returns false if conn is no TCP socket.
func sinceArrival(conn net.Conn) (since time.Duration, known bool) {
	control(conn, func(fd int) {
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			since, known = time.Duration(info.Last_data_recv)*time.Millisecond, true
		}
	})
	return since, known
}

// control calls f with the descriptor of conn, if it has one.
func control(conn net.Conn, f func(fd int)) {
	if sc, ok := conn.(syscall.Conn); ok {
		if rc, err := sc.SyscallConn(); err == nil {
			rc.Control(func(fd uintptr) { f(int(fd)) })
		}
	}
}
