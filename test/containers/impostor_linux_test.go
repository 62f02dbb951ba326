package containers

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Clients of these ports are those that an impostor knows.
const (
	firstPort = 40000
	ports     = 10
)

// What an impostor does to a process that has connected to it, or to whose socket it has connected.
var manners = map[string]func(c *net.UnixConn){
	"silent": func(*net.UnixConn) {},
	"leaves": func(c *net.UnixConn) { c.Close() },
	"junk":   func(c *net.UnixConn) { c.Write(make([]byte, 1<<20)) },
	"short":  func(c *net.UnixConn) { c.Write([]byte{1}) },
	"echo":   func(c *net.UnixConn) { io.Copy(c, c) },
	"files": func(c *net.UnixConn) {
		fds := make([]int, 250)
		for range 10 {
			c.WriteMsgUnix([]byte{1}, unix.UnixRights(fds...), nil)
		}
	},
}

// obstacles are what an impostor puts in the place of a socket.
var obstacles = map[string]func(path string) error{
	"pipe":      func(path string) error { return unix.Mkfifo(path, 0o666) },
	"directory": func(path string) error { return os.Mkdir(path, 0o777) },
	"link":      func(path string) error { return os.Symlink("/dev/zero", path) },
	"dead":      func(path string) error { return deadSocket(path) },
}

func deadSocket(path string) error {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err == nil {
		ln.SetUnlinkOnClose(false)
		err = ln.Close()
	}
	return err
}

// impose has the container do something to the directory, for as long as it lives.
//
//	squat    takes the names of clients, with manners or obstacles
//	visit    connects to each socket that appears, with manners
//	remove   removes all files that appear
//	litter   makes thousands of sockets where nobody listens
func impose(what, how string) error {
	switch what {
	case "squat":
		for port := firstPort; port < firstPort+ports; port++ {
			path := fmt.Sprintf("%s/v1-%s:%d", inside, clientAddress, port)
			if put := obstacles[how]; put != nil {
				if err := put(path); err != nil {
					return err
				}
				continue
			}
			ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
			if err != nil {
				return err
			}
			os.Chmod(path, 0o666)
			go func() {
				for {
					c, err := ln.AcceptUnix()
					if err != nil {
						return
					}
					go manners[how](c)
				}
			}()
		}
	case "visit":
		go eachFile(func(path string) {
			if c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: path}); err == nil {
				go manners[how](c)
			}
		})
	case "remove":
		go eachFile(func(path string) { os.Remove(path) })
	case "litter":
		for i := range 5_000 {
			if err := deadSocket(fmt.Sprintf("%s/v1-10.1.%d.%d:1", inside, i>>8, i&255)); err != nil {
				return err
			}
		}
	}
	return nil
}

func eachFile(f func(path string)) {
	for {
		dir, err := os.Open(inside)
		if err != nil {
			return
		}
		names, _ := dir.Readdirnames(-1)
		dir.Close()
		for _, name := range names {
			f(filepath.Join(inside, name))
		}
	}
}

// TestImpostor: a third container, which shares nothing with two others but the directory, can keep their connections on TCP,
// and neither stop nor break them. When it has gone, they move again.
func TestImpostor(t *testing.T) {
	needsRoot(t)
	type act struct{ what, how string }
	acts := []act{{"remove", "all"}, {"litter", "much"}}
	for how := range manners {
		acts = append(acts, act{"squat", how}, act{"visit", how})
	}
	for how := range obstacles {
		acts = append(acts, act{"squat", how})
	}
	for _, uid := range []int{0, 1000} {
		for _, a := range acts {
			t.Run(fmt.Sprintf("%s %s as %d", a.what, a.how, uid), func(t *testing.T) {
				dir := sharedDir(t)
				require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
				s, c := pair(t, options{dir: dir}, options{dir: dir})
				impostor := start(t, options{dir: dir, uid: uid})
				require.Equal(t, "ok", s.does(t, "serve one :7000"))
				require.Equal(t, "ok", impostor.does(t, "impostor %s %s", a.what, a.how))
				answer := c.does(t, "dial one %s %d 400 %d", at, ports, firstPort)
				if a.what == "squat" {
					assert.Equal(t, fmt.Sprintf("map[tcp:%d]", ports), answer)
				} else {
					assert.Regexp(t, `^map\[(shm:\d+)? ?(tcp:\d+)?\]$`, answer)
				}
				t.Log(answer, c.does(t, "why"), " / ", s.does(t, "why"))
				impostor.kill()
				require.Equal(t, "map[shm:5]", c.does(t, "dial one %s 5 100000 %d", at, firstPort+ports), "%s", c.does(t, "why"))
			})
		}
	}
}
