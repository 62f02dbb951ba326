package proxy

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// firstInherited is the first descriptor that systemd passes (sd_listen_fds(3)).
const firstInherited = 3

// maxInherited limits the number in LISTEN_FDS.
const maxInherited = 1024

// Inherited returns the sockets that systemd has passed to this process, by name or, without a
// name, by number. It removes their variables from the environment, so that a second call, or a
// program that this one starts, finds none.
func Inherited() (map[string]*os.File, error) {
	defer func() {
		for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"} {
			os.Unsetenv(name)
		}
	}()
	if pid, err := strconv.Atoi(os.Getenv("LISTEN_PID")); err != nil || pid != os.Getpid() {
		return nil, nil // there are none, or they are another process's
	}
	count, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil || count < 0 || count > maxInherited {
		return nil, fmt.Errorf("LISTEN_FDS=%s: not a number of sockets", os.Getenv("LISTEN_FDS"))
	}
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	files := make(map[string]*os.File, count)
	for i := range count {
		fd := firstInherited + i
		closeOnExec(fd)
		name := strconv.Itoa(fd)
		// "unknown" is what systemd calls a socket without a name.
		if i < len(names) && names[i] != "" && names[i] != "unknown" && files[names[i]] == nil {
			name = names[i]
		}
		files[name] = os.NewFile(uintptr(fd), name)
	}
	return files, nil
}

// Notify tells systemd about this process's state ("READY=1"), if systemd wants to know
// (sd_notify(3)).
func Notify(state string) error {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: address})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte(state))
	return err
}
