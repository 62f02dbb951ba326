package diagnose

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// maxNamespaces bounds how many network namespaces are searched.
const maxNamespaces = 256

// namespaceOf returns which process's network namespace on this host holds the other end of
// c, and "" if none does that this process may look into.
func namespaceOf(c net.Conn) string {
	local, remote := addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	own, _ := os.Readlink("/proc/self/ns/net")
	seen := map[string]bool{own: true}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		ns, err := os.Readlink(p + "/ns/net")
		if err != nil || seen[ns] {
			continue
		}
		if seen[ns] = true; len(seen) > maxNamespaces {
			return ""
		}
		for _, table := range []string{"tcp", "tcp6"} {
			if hasSocket(p+"/net/"+table, remote, local) {
				name, _ := os.ReadFile(p + "/comm")
				return fmt.Sprintf("%s, that of process %s, %s", ns, filepath.Base(p), strings.TrimSpace(string(name)))
			}
		}
	}
	return ""
}

// hasSocket reports whether a table of /proc/net has a socket with these addresses.
func hasSocket(table string, local, remote netip.AddrPort) bool {
	f, err := os.Open(table)
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 3 && kernelAddress(fields[1]) == unmapped(local) && kernelAddress(fields[2]) == unmapped(remote) {
			return true
		}
	}
	return false
}

// kernelAddress reads an address such as 0100007F:1F90: words of four bytes in the machine's
// order, and the port.
func kernelAddress(text string) netip.AddrPort {
	address, port, _ := strings.Cut(text, ":")
	a, err := hex.DecodeString(address)
	p, err2 := hex.DecodeString(port)
	if err != nil || err2 != nil || len(a)%4 != 0 || len(p) != 2 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(a); i += 4 {
		binary.NativeEndian.PutUint32(a[i:], binary.BigEndian.Uint32(a[i:]))
	}
	ip, _ := netip.AddrFromSlice(a)
	return netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(p))
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
