package containers

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const at = serverAddress + ":7000"

// moves has the client dial; each connection must move to shared memory.
func moves(t *testing.T, c *container, server, address string) {
	t.Helper()
	require.Equal(t, "map[shm:5]", c.does(t, "dial %s %s 5 100000", server, address), "%s", c.does(t, "why"))
}

// isPlain has the client dial; each connection must stay on TCP.
func isPlain(t *testing.T, c *container, server, address string) {
	t.Helper()
	require.Equal(t, "map[tcp:5]", c.does(t, "dial %s %s 5 400", server, address))
}

// TestContainersShareMemory: connections of two containers with one directory move, whatever the addresses, and leave
// nothing there.
func TestContainersShareMemory(t *testing.T) {
	needsRoot(t)
	for name, env := range map[string][]string{"at once": nil, "when it pays": {"SDP_MOVE="}} {
		t.Run(name, func(t *testing.T) {
			dir := sharedDir(t)
			s, c := pair(t, options{dir: dir, env: env}, options{dir: dir, env: env})
			for _, end := range []struct {
				*container
				address string
			}{{s, "fd00:211::2/64"}, {c, "fd00:211::1/64"}} {
				end.run(t, "ip", "address", "add", end.address, "dev", "wire", "nodad")
			}
			require.Equal(t, "ok", s.does(t, "serve one :7000"))
			require.Equal(t, "ok", s.does(t, "serve two %s:7001", serverAddress))
			moves(t, c, "one", at)
			moves(t, c, "one", "[fd00:211::2]:7000")
			moves(t, c, "two", serverAddress+":7001")
			require.Equal(t, "ok", s.does(t, "sink :7002"))
			assert.Equal(t, "shm", c.does(t, "stream %s:7002", serverAddress))
			assert.Empty(t, files(t, dir))
		})
	}
}

// TestNetworkSDP: a Dial on network sdp gets shared memory from a program of its pod. Another container it asks for RDMA.
func TestNetworkSDP(t *testing.T) {
	needsRoot(t)
	dir := sharedDir(t)
	s, c := pair(t, options{dir: dir}, options{dir: dir})
	beside := start(t, options{dir: dir, beside: s})
	require.Equal(t, "ok", s.does(t, "serve one :7000"))
	assert.Equal(t, "ok", beside.does(t, "insist %s", at))
	assert.Contains(t, c.does(t, "insist %s", at), "does not speak SDP: answered")
	assert.Empty(t, files(t, dir))
}

// TestPod: programs of one network namespace need no directory, and may have one.
func TestPod(t *testing.T) {
	needsRoot(t)
	for name, dir := range map[string]string{"with a directory": sharedDir(t), "without": ""} {
		t.Run(name, func(t *testing.T) {
			s, other := pair(t, options{dir: dir}, options{})
			c := start(t, options{dir: dir, beside: s})
			require.Equal(t, "ok", s.does(t, "serve one :7000"))
			moves(t, c, "one", "127.0.0.1:7000")
			moves(t, c, "one", at)
			isPlain(t, other, "one", at)
		})
	}
}

// TestPlainTCPBetweenContainers: where something is missing or different, the connection stays on TCP.
func TestPlainTCPBetweenContainers(t *testing.T) {
	needsRoot(t)
	dir, other := sharedDir(t), sharedDir(t)
	open := sharedDir(t)
	require.NoError(t, os.Chmod(open, 0o777))
	sticky := sharedDir(t)
	require.NoError(t, os.Chmod(sticky, 0o777|os.ModeSticky))
	readOnly := []string{readOnlyVariable + "=1"}
	for _, v := range []struct {
		name           string
		server, client options
		why            string // says the client or the server
	}{
		{"no directory", options{}, options{}, ""},
		{"no directory of the client's", options{dir: dir}, options{}, "too little traffic|does not share memory"},
		{"no directory of the server's", options{}, options{dir: dir}, "too little traffic|does not share memory"},
		{"another directory", options{dir: dir}, options{dir: other}, "does not share memory"},
		{"another user", options{dir: sticky}, options{dir: sticky, uid: 1000}, "peer runs as user 1000"},
		{"another user namespace", options{dir: sticky}, options{dir: sticky, users: true}, "does not share memory"},
		{"everybody may write", options{dir: open}, options{dir: open}, ""},
		{"read-only for the client", options{dir: dir}, options{dir: dir, env: readOnly}, "read-only"},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := pair(t, v.server, v.client)
			require.Equal(t, "ok", s.does(t, "serve one :7000"))
			isPlain(t, c, "one", at)
			assert.Regexp(t, v.why, c.does(t, "why")+s.does(t, "why"))
			assert.Empty(t, files(t, dir))
		})
	}
	t.Run("a server may have it read-only", func(t *testing.T) {
		s, c := pair(t, options{dir: dir, env: readOnly}, options{dir: dir})
		require.Equal(t, "ok", s.does(t, "serve one :7000"))
		moves(t, c, "one", at)
	})
}

// TestUsersThatAreNamed: containers of different users share memory if both name the other one's.
func TestUsersThatAreNamed(t *testing.T) {
	needsRoot(t)
	for _, v := range []struct {
		name           string
		server, client []string
		moves          bool
	}{
		{"both", []string{"SDP_PEER_UIDS=1000"}, []string{"SDP_PEER_UIDS=0"}, true},
		{"the server alone", []string{"SDP_PEER_UIDS=1000"}, nil, false},
		{"the client alone", nil, []string{"SDP_PEER_UIDS=0"}, false},
	} {
		for _, names := range [][2]int{{0, 1000}, {1000, 0}} {
			t.Run(fmt.Sprint(v.name, names), func(t *testing.T) {
				dir := sharedDir(t)
				require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
				ends := [2]options{{dir: dir, env: v.server}, {dir: dir, uid: 1000, env: v.client}}
				if names[0] == 1000 {
					ends[0], ends[1] = ends[1], ends[0]
				}
				s, c := pair(t, ends[0], ends[1])
				require.Equal(t, "ok", s.does(t, "serve one :7000"))
				if v.moves {
					moves(t, c, "one", at)
				} else {
					isPlain(t, c, "one", at)
				}
			})
		}
	}
}

const service = "10.96.0.10"

// TestServiceAddress: translation of the server's address is seen through, that of the client's is not.
func TestServiceAddress(t *testing.T) {
	needsRoot(t, "nft")
	dir := sharedDir(t)
	s, c := pair(t, options{dir: dir}, options{dir: dir})
	c.run(t, "ip", "route", "add", "10.96.0.0/12", "dev", "wire")
	c.run(t, "nft", "add table ip cluster; "+
		"add chain ip cluster output { type nat hook output priority -100; }; "+
		"add rule ip cluster output ip daddr "+service+" tcp dport 80 dnat to "+at)
	require.Equal(t, "ok", s.does(t, "serve one :7000"))
	moves(t, c, "one", service+":80")
	c.run(t, "nft", "add chain ip cluster post { type nat hook postrouting priority 100; }; "+
		"add rule ip cluster post tcp dport 7000 snat to 10.211.0.9")
	c.run(t, "ip", "address", "add", "10.211.0.9/24", "dev", "wire")
	isPlain(t, c, "one", service+":80")
	isPlain(t, c, "one", at)
	assert.Empty(t, files(t, dir))
}

// TestRelay: no end takes the other one for its peer if a relay is in between, whether the first bytes of all connections
// are the same or not. Relays are in a namespace of their own, in the client's or the server's, or all are in one.
func TestRelay(t *testing.T) {
	needsRoot(t)
	for _, where := range []string{"its own", "the client's", "the server's", "one for all"} {
		t.Run(where, func(t *testing.T) {
			dir := sharedDir(t)
			s, c := pair(t, options{dir: dir}, options{dir: dir})
			r, listens, to := start(t, options{dir: dir}), "10.211.2.1:7001", "10.211.1.2:7000"
			switch where {
			case "its own":
				join(t, r, s, "north", "10.211.1.1/24", "10.211.1.2/24")
				join(t, r, c, "south", "10.211.2.1/24", "10.211.2.2/24")
			case "the client's":
				r, listens, to = start(t, options{dir: dir, beside: c}), "127.0.0.1:7001", at
			case "the server's":
				r, listens, to = start(t, options{dir: dir, beside: s}), serverAddress+":7001", "127.0.0.1:7000"
			case "one for all":
				c, r = start(t, options{dir: dir, beside: s}), start(t, options{dir: dir, beside: s})
				listens, to = "127.0.0.1:7001", "127.0.0.1:7000"
			}
			require.Equal(t, "ok", s.does(t, "serve one :7000"))
			require.Equal(t, "ok", r.does(t, "relay %s %s", listens, to))
			isPlain(t, c, "one", listens)
			speaks := strings.Replace(listens, ":7001", ":7002", 1)
			require.Equal(t, "ok", r.does(t, "relay %s %s sdp", speaks, to))
			moves(t, c, "one", speaks) // each end meets the relay
			assert.Empty(t, files(t, dir))
		})
	}
}

// TestTransparentRelay: a relay that has the client's address, but another port, is no exception. One that has its port, too,
// and changes no byte, cannot be told from none.
func TestTransparentRelay(t *testing.T) {
	needsRoot(t)
	for _, keeps := range []string{"address", "port"} {
		t.Run(keeps, func(t *testing.T) {
			dir := sharedDir(t)
			s, c, r := start(t, options{dir: dir}), start(t, options{dir: dir}), start(t, options{})
			join(t, r, s, "north", "10.211.1.1/24", "10.211.1.2/24")
			join(t, r, c, "south", "10.211.2.1/24", "10.211.2.2/24")
			s.run(t, "ip", "route", "add", "10.211.2.0/24", "via", "10.211.1.1")
			r.run(t, "ip", "rule", "add", "iif", "north", "lookup", "100")
			r.run(t, "ip", "route", "add", "local", "10.211.2.2/32", "dev", "lo", "table", "100")
			require.Equal(t, "ok", s.does(t, "serve one :7000"))
			require.Equal(t, "ok", r.does(t, "relay 10.211.2.1:7000 10.211.1.2:7000 %s", keeps))
			if keeps == "address" {
				isPlain(t, c, "one", "10.211.2.1:7000")
			} else {
				assert.Regexp(t, `^map\[(shm|tcp):5\]$`, c.does(t, "dial one 10.211.2.1:7000 5 1000"))
			}
			assert.Empty(t, files(t, dir))
		})
	}
}

// TestOverlappingNetworks: two clients with the same address and port, which say the same, one after the other or in turn, to
// servers with the same address, which answer the same. No end is taken for another one's peer.
func TestOverlappingNetworks(t *testing.T) {
	needsRoot(t)
	dir := sharedDir(t)
	var servers, clients [2]*container
	for i := range servers {
		servers[i], clients[i] = pair(t, options{dir: dir}, options{dir: dir})
		require.Equal(t, "ok", servers[i].does(t, "serve server%d :7000", i))
	}
	mistakes := regexp.MustCompile("peer has read bytes before|peer has counted other bytes|peer has read other bytes|address already in use")
	seen := false
	for round := range 10 {
		for i, c := range clients {
			require.Equal(t, "ok", c.does(t, "open server%d %s %d", i, at, 40000+round))
		}
		for range 300 {
			for i := range clients {
				c := clients[(i+round)%2]
				require.Regexp(t, "^(shm|tcp)$", c.does(t, "say 1"))
				if round%3 == 2 {
					require.Regexp(t, "^(shm|tcp)$", c.does(t, "say 3"))
				}
			}
		}
		for i := range clients {
			why := clients[i].does(t, "why") + servers[i].does(t, "why")
			seen = seen || mistakes.MatchString(why)
		}
	}
	assert.True(t, seen, "no end found the wrong one")
	for i, c := range clients {
		moves(t, c, fmt.Sprint("server", i), at)
	}
	assert.Empty(t, files(t, dir))
}

// TestPlainProgramsOfContainers: a server without SDP in a container that serves SDP too sees no byte
// of it.
func TestPlainProgramsOfContainers(t *testing.T) {
	needsRoot(t)
	dir := sharedDir(t)
	s, c := pair(t, options{dir: dir}, options{dir: dir})
	require.Equal(t, "ok", s.does(t, "plain one :7001"))
	require.Equal(t, "ok", s.does(t, "serve two :7000"))
	isPlain(t, c, "one", serverAddress+":7001")
	moves(t, c, "two", at)
}

// TestKilledProcessesLeaveNothing kills clients and servers under load. What they leave in the directory, later clients remove.
func TestKilledProcessesLeaveNothing(t *testing.T) {
	needsRoot(t)
	if testing.Short() {
		t.Skip("missing: time, because -short is set; a hundred containers take a while")
	}
	dir := sharedDir(t)
	serve := func() *container {
		s := start(t, options{dir: dir})
		require.Equal(t, "ok", s.does(t, "serve one :7000"))
		require.Equal(t, "ok", s.does(t, "plain two :7001")) // whose clients invite nobody
		return s
	}
	s := serve()
	most := 0
	for i := range 100 {
		c := start(t, options{dir: dir})
		// A network of its own: the kernel takes a while to end that of a container.
		net := fmt.Sprintf("10.212.%d.", i)
		join(t, c, s, fmt.Sprint("wire", i), net+"1/24", net+"2/24")
		require.Equal(t, "map[tcp:1]", c.does(t, "load two %s2:7001 100", net))
		require.Equal(t, "map[shm:1]", c.does(t, "load one %s2:7000 10000", net))
		if i%10 == 9 { // the server, too
			s.kill()
			c.kill()
			s = serve()
		}
		c.kill()
		most = max(most, len(files(t, dir)))
	}
	t.Logf("at most %d files, now %d", most, len(files(t, dir)))
	assert.Positive(t, most)
	s, c := pair(t, options{dir: dir}, options{dir: dir})
	require.Equal(t, "ok", s.does(t, "serve one :7000"))
	for end := time.Now().Add(time.Minute); len(files(t, dir)) > 0; {
		require.True(t, time.Now().Before(end), "%v", files(t, dir))
		moves(t, c, "one", at)
	}
}

func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := filepath.Glob(dir + "/*")
	require.NoError(t, err)
	for _, one := range entries {
		all = append(all, strings.TrimPrefix(one, dir+"/"))
	}
	return all
}
