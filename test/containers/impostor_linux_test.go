package containers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// impose has the container do to the shared directory what the first argument says.
//
//	silent   takes the names of all listeners, and sends nothing
//	guess    answers claims with ports
//	relay    takes the names of listeners and clients, and passes on what comes, descriptors too
//	withhold takes the names of all listeners, and passes on everything but the openings
//	flood    connects to the listeners as often as it can, and claims what the others have
//	litter   puts files, links and pipes under the names of listeners; and tens of thousands elsewhere
func (r *role) impose(args []string) error {
	switch args[0] {
	case "silent", "guess", "relay", "withhold":
		names, err := filepath.Glob("/mnt/a-*")
		if err != nil || len(names) == 0 {
			return fmt.Errorf("no listener is announced: %v", err)
		}
		for _, name := range names {
			if err := r.replace(name, "unixpacket", args[0]); err != nil {
				return err
			}
		}
		if args[0] == "relay" {
			go r.replaceClients()
		}
		return nil
	case "flood":
		names, _ := filepath.Glob("/mnt/a-*")
		for range 4 {
			go flood(names)
		}
		return nil
	case "litter":
		return litter()
	}
	return errors.New("no such impostor")
}

// replace puts a socket in the place of another one, which keeps another name.
func (r *role) replace(name, network, how string) error {
	hidden := filepath.Join("/mnt", "h"+filepath.Base(name))
	if err := os.Rename(name, hidden); err != nil {
		return err
	}
	ln, err := net.ListenUnix(network, &net.UnixAddr{Net: network, Name: name})
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.came++
			r.mu.Unlock()
			switch how {
			case "guess":
				go func() {
					for port := 32768; ; port++ {
						if _, err := c.Write([]byte{byte(port >> 8), byte(port)}); err != nil {
							return
						}
					}
				}()
			case "relay", "withhold":
				far, err := net.DialUnix(network, nil, &net.UnixAddr{Net: network, Name: hidden})
				if err != nil {
					c.Close()
					continue
				}
				go r.pass(c, far, how == "withhold")
				go r.pass(far, c, false)
			}
		}
	}()
	return nil
}

// pass passes on what comes, but for openings if it withholds those, and notes what it sees and
// that files come.
func (r *role) pass(from, to *net.UnixConn, withholds bool) {
	defer to.Close()
	b, oob := make([]byte, 1<<16), make([]byte, 1<<12)
	for {
		n, k, _, _, err := from.ReadMsgUnix(b, oob)
		if err != nil || n == 0 {
			return
		}
		r.Write(b[:n])
		messages, _ := unix.ParseSocketControlMessage(oob[:k])
		for i := range messages {
			fds, _ := unix.ParseUnixRights(&messages[i])
			for range fds {
				fmt.Fprint(r, "FILE")
			}
		}
		if withholds && n == 16 {
			continue
		}
		if _, _, err := to.WriteMsgUnix(b[:n], oob[:k], nil); err != nil {
			return
		}
	}
}

// replaceClients puts sockets in the place of those of clients, as soon as it sees them.
func (r *role) replaceClients() {
	for {
		dir, err := os.Open("/mnt")
		if err != nil {
			return
		}
		names, _ := dir.Readdirnames(-1)
		dir.Close()
		for _, name := range names {
			if strings.HasPrefix(name, "c-") {
				if _, err := os.Lstat("/mnt/h" + name); err != nil {
					r.replace("/mnt/"+name, "unix", "relay")
				}
			}
		}
	}
}

func flood(names []string) {
	claim := append([]byte("SDPdir1\n"), make([]byte, 10)...)
	claim = append(append(claim, 0xff, 0xff), net.ParseIP(clientAddress).To4()...)
	claim = append(claim, make([]byte, 33)...)
	for i := 0; ; i++ {
		c, err := net.Dial("unixpacket", names[i%len(names)])
		if err != nil {
			continue
		}
		claim[26] = byte(i)
		c.Write(claim)
		if i%2 == 0 {
			c.Close()
		}
	}
}

func litter() error {
	names, _ := filepath.Glob("/mnt/a-*")
	if len(names) == 0 {
		return errors.New("no listener is announced")
	}
	for i, name := range names {
		if err := os.Remove(name); err != nil {
			return err
		}
		var err error
		switch i % 3 {
		case 0:
			err = unix.Mkfifo(name, 0o666)
		case 1:
			err = os.Symlink("/dev/zero", name)
		default:
			err = os.Mkdir(name, 0o777)
		}
		if err != nil {
			return err
		}
	}
	for i := range 20_000 {
		if err := os.WriteFile(fmt.Sprintf("/mnt/c-%016x", i), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// three starts a server, a client, and a third container, which shares nothing with them but the
// directory.
func three(t *testing.T) (s, c, third *container) {
	dir := sharedDir(t)
	s, c = pair(t, options{dir: dir}, options{dir: dir})
	return s, c, start(t, options{dir: dir})
}

// TestImpostor: a container that replaces sockets in the directory can prevent that two others
// use shm, and no more. It sees no byte of a stream and no memory, no server without SDP is sent
// anything.
func TestImpostor(t *testing.T) {
	needsRoot(t)
	for _, how := range []string{"silent", "guess", "relay", "withhold"} {
		t.Run(how, func(t *testing.T) {
			s, c, impostor := three(t)
			require.Equal(t, "ok", s.does(t, "listen tcp %s", at))
			goesOver(t, c, at, "shm")
			require.Equal(t, "ok", impostor.does(t, "impostor %s", how))
			require.Equal(t, "ok", c.does(t, "forget all"))
			answer := c.does(t, "dial tcp %s 50 channels", at)
			if how == "relay" || how == "withhold" {
				assert.Regexp(t, `^map\[`, answer) // it may be too late for some
			} else {
				assert.Regexp(t, `^map\[(shm:\d+ )?tcp:\d+\]`, answer)
			}
			seen := impostor.does(t, "seen")
			assert.NotRegexp(t, `^0 `, seen, "nothing came to the impostor")
			assert.NotContains(t, seen, "secret")
			assert.NotContains(t, seen, "FILE")
			assert.NotContains(t, c.does(t, "log"), "SDP: answered", "a Request got to the server's program")
			t.Log(answer, len(seen))
		})
	}
	t.Run("of a server without SDP", func(t *testing.T) {
		s, c, impostor := three(t)
		require.Equal(t, "ok", s.does(t, "listen tcp %s", at)) // so that there is a name to take
		require.Equal(t, "ok", impostor.does(t, "impostor guess"))
		s.kill()
		s = start(t, options{dir: ""})
		join(t, c, s, "other", "10.211.3.1/24", "10.211.3.2/24")
		c.run(t, "ip", "route", "replace", serverAddress+"/32", "via", "10.211.3.2")
		s.run(t, "ip", "address", "add", serverAddress+"/32", "dev", "lo")
		require.Equal(t, "ok", s.does(t, "plain %s", at))
		isPlain(t, c, at)
		assert.NotContains(t, s.does(t, "seen"), "MPA")
	})
}

// TestHostileDirectory: whatever a third container does to the directory, every dial succeeds, and so
// does a connection that is not for SDP.
func TestHostileDirectory(t *testing.T) {
	needsRoot(t)
	for _, how := range []string{"silent", "guess", "flood", "litter"} {
		t.Run(how, func(t *testing.T) {
			s, c, third := three(t)
			require.Equal(t, "ok", s.does(t, "listen tcp :7000"))
			require.Equal(t, "ok", s.does(t, "plain :7001"))
			goesOver(t, c, at, "shm")
			require.Equal(t, "ok", third.does(t, "impostor %s", how))
			require.Equal(t, "ok", c.does(t, "forget all"))
			assert.Regexp(t, `^map\[(shm:\d+)? ?(tcp:\d+)?\]$`, c.does(t, "dial tcp %s 50", at))
			require.Equal(t, "ok", c.does(t, "nets %s 50", at))
			require.Equal(t, "ok", c.does(t, "nets %s:7001 50", serverAddress))
			if how == "litter" {
				assert.Contains(t, c.does(t, "log"), "is not a socket")
			}
		})
	}
}
