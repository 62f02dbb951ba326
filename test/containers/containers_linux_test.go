package containers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goesOver has the client dial twenty times on network sdp, where every server is asked and plain
// TCP is an error.
func goesOver(t *testing.T, c *container, address, device string) {
	t.Helper()
	assert.Equal(t, "map["+device+":20]", c.does(t, "dial sdp %s 20", address))
	if t.Failed() {
		t.Log("the client says: ", c.does(t, "log"))
	}
}

// isPlain has the client dial; each connection must be plain TCP.
func isPlain(t *testing.T, c *container, address string) {
	t.Helper()
	assert.Equal(t, "map[tcp:20]", c.does(t, "dial tcp %s 20", address))
}

const at = serverAddress + ":7000"

// TestContainersShareMemory: two containers with one directory use shm, on any address of the server.
func TestContainersShareMemory(t *testing.T) {
	needsRoot(t)
	for name, listen := range map[string]string{"an address": at, "every address": ":7000"} {
		for _, network := range []string{"tcp", "sdp"} {
			t.Run(name+" "+network, func(t *testing.T) {
				dir := sharedDir(t)
				s, c := pair(t, options{dir: dir}, options{dir: dir})
				require.Equal(t, "ok", s.does(t, "listen %s %s", network, listen))
				goesOver(t, c, at, "shm")
			})
		}
	}
}

// TestAnotherServer: a program without SDP that listens where SDP was served a moment ago gets nothing
// but the client's own bytes. The process that served SDP lives.
func TestAnotherServer(t *testing.T) {
	needsRoot(t)
	dir := sharedDir(t)
	s, c := pair(t, options{dir: dir}, options{dir: dir})
	for i := range 6 {
		require.Equal(t, "ok", s.does(t, "listen tcp %s", at))
		goesOver(t, c, at, "shm")
		if i%2 == 0 { // a connection that no Accept returns delays the end of the channels
			require.Equal(t, "ok", s.does(t, "refrain"))
			require.Equal(t, "ok", c.does(t, "hold %s", at))
		}
		require.Equal(t, "ok", s.does(t, "unlisten"))
		require.Equal(t, "ok", s.does(t, "plain %s", at))
		assert.Regexp(t, `^map\[tcp:1\]$`, c.does(t, "dial tcp %s 1", at))
		require.Equal(t, "ok", s.does(t, "unplain"))
	}
	assert.Equal(t, fmt.Sprintf("6 %q", strings.Repeat("secret", 6*(100/6+1))), s.does(t, "seen"))
}

// TestHandedOut: a listener whose socket was passed to a program without SDP is announced nowhere
// until it accepts again, so no dialler waits for an answer. The program gets nothing but the
// clients' own bytes.
func TestHandedOut(t *testing.T) {
	needsRoot(t)
	dir := sharedDir(t)
	s, c := pair(t, options{dir: dir}, options{dir: dir})
	require.Equal(t, "ok", s.does(t, "listen tcp %s", at))
	for range 3 {
		goesOver(t, c, at, "shm") // a channel is kept, and the socket of a claim
		require.Equal(t, "ok", s.does(t, "hand-out"))
		before := len(c.does(t, "log"))
		isPlain(t, c, at)
		assert.NotContains(t, c.does(t, "log")[before:], "no confirmation")
		require.Equal(t, "ok", s.does(t, "accept"))
		require.Eventually(t, func() bool {
			names, _ := filepath.Glob(dir + "/a-*")
			return len(names) > 0
		}, time.Minute, time.Millisecond, "it is announced again")
	}
	goesOver(t, c, at, "shm")
	assert.Equal(t, fmt.Sprintf("60 %q", strings.Repeat("secret", 60*(100/6+1))), s.does(t, "seen"))
}

// TestContainersOfIPv6, and of a server that gets its address when it listens already.
func TestContainersOfIPv6(t *testing.T) {
	needsRoot(t)
	dir := sharedDir(t)
	s, c := pair(t, options{dir: dir}, options{dir: dir})
	require.Equal(t, "ok", s.does(t, "listen tcp :7000"))
	for _, end := range []struct {
		*container
		address string
	}{{s, "fd00:211::2/64"}, {c, "fd00:211::1/64"}} {
		end.run(t, "ip", "address", "add", end.address, "dev", "wire", "nodad")
	}
	c.does(t, "dial tcp [fd00:211::2]:7000 1")                   // then the listener knows the address, and announces it
	for _, address := range []string{"[fd00:211::2]:7000", at} { // of a socket of both families
		goesOver(t, c, address, "shm")
	}
}

// TestPlainTCPBetweenContainers: where something is missing or different, the connection is plain TCP.
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
		why            string // that the client or the server logs
	}{
		{"no directory", options{}, options{}, ""},
		{"no directory of the client's", options{dir: dir}, options{}, ""},
		{"no directory of the server's", options{}, options{dir: dir}, ""},
		{"another directory", options{dir: dir}, options{dir: other}, ""},
		{"another user", options{dir: sticky}, options{dir: sticky, uid: 1000}, "permission denied|peer has uid 0, ours 1000"},
		{"another user namespace", options{dir: sticky}, options{dir: sticky, users: true}, "owner has no uid"},
		{"everybody may write", options{dir: open}, options{dir: open}, "mode 0777 lets every user replace files"},
		{"read-only for the client", options{dir: dir}, options{dir: dir, env: readOnly}, "read-only"},
		{"read-only for the server", options{dir: dir, env: readOnly}, options{dir: dir}, "read-only"},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := pair(t, v.server, v.client)
			require.Equal(t, "ok", s.does(t, "listen tcp :7000"))
			isPlain(t, c, at)
			if v.why != "" {
				assert.Regexp(t, v.why, c.does(t, "log")+s.does(t, "log"))
			}
		})
	}
}

// TestClientThatCannotGoOn: a client that finds that it cannot use shm, after the listener has
// begun to expect a Request, keeps its connection, and a server that speaks first need not wait for
// the time limit of the handshake.
func TestClientThatCannotGoOn(t *testing.T) {
	needsRoot(t)
	dir := sharedDir(t)
	s, c := pair(t, options{dir: dir}, options{dir: dir, env: []string{readOnlyVariable + "=1"}})
	require.Equal(t, "ok", s.does(t, "greet :7000"))
	require.Equal(t, "ok", c.does(t, "greeted %s 20", at))
	assert.Contains(t, c.does(t, "log"), "read-only")
}

// TestUsersThatAreNamed: containers of different users use shm if both name the other one's.
func TestUsersThatAreNamed(t *testing.T) {
	needsRoot(t)
	for _, v := range []struct {
		name           string
		server, client []string
		device         string
	}{
		{"both", []string{peerVariable + "=1000"}, []string{peerVariable + "=0"}, "shm"},
		{"the server alone", []string{peerVariable + "=1000"}, nil, "tcp"},
		{"the client alone", nil, []string{peerVariable + "=0"}, "tcp"},
	} {
		t.Run(v.name, func(t *testing.T) {
			dir := sharedDir(t)
			require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
			s, c := pair(t, options{dir: dir, env: v.server}, options{dir: dir, uid: 1000, env: v.client})
			require.Equal(t, "ok", s.does(t, "listen tcp :7000"))
			if v.device == "tcp" {
				isPlain(t, c, at)
				return
			}
			goesOver(t, c, at, v.device)
		})
	}
}

// TestRelayBetweenContainers: a relay that both containers could do without is not bypassed.
func TestRelayBetweenContainers(t *testing.T) {
	needsRoot(t)
	dir := sharedDir(t)
	s, c := pair(t, options{dir: dir}, options{dir: dir})
	r := start(t, options{dir: dir})
	join(t, r, s, "north", "10.211.1.1/24", "10.211.1.2/24")
	join(t, r, c, "south", "10.211.2.1/24", "10.211.2.2/24")
	require.Equal(t, "ok", s.does(t, "listen tcp :7000"))
	require.Equal(t, "ok", r.does(t, "relay 10.211.2.1:7000 10.211.1.2:7000"))
	isPlain(t, c, "10.211.2.1:7000")
	goesOver(t, c, at, "shm") // without the relay
}

const service = "10.96.0.10"

// translate has the client's kernel translate the address of a service, as those of a cluster do.
func translate(t *testing.T, c *container) {
	t.Helper()
	c.run(t, "ip", "route", "add", "10.96.0.0/12", "dev", "wire")
	c.run(t, "nft", "add table ip cluster; "+
		"add chain ip cluster output { type nat hook output priority -100; }; "+
		"add rule ip cluster output ip daddr "+service+" tcp dport 80 dnat to "+at)
}

// TestServiceAddress: address translation is seen through where the operator says so.
func TestServiceAddress(t *testing.T) {
	needsRoot(t, "nft")
	peers := []string{"SDP_PEERS=10.96.0.0/12,10.211.0.0/24"}
	for _, v := range []struct {
		name           string
		server, client []string
		device         string
	}{
		{"a service of the list", append(peers, "SDP_SERVICES=10.96.0.0/12"), peers, "shm"},
		{"of no list", peers, peers, "tcp"},
		{"of another list", append(peers, "SDP_SERVICES=10.97.0.0/16"), peers, "tcp"},
		{"not asked", append(peers, "SDP_SERVICES=10.96.0.0/12"), nil, "tcp"},
	} {
		t.Run(v.name, func(t *testing.T) {
			dir := sharedDir(t)
			s, c := pair(t, options{dir: dir, env: v.server}, options{dir: dir, env: v.client})
			translate(t, c)
			require.Equal(t, "ok", s.does(t, "listen tcp :7000"))
			if v.device == "tcp" {
				isPlain(t, c, service+":80")
				return
			}
			goesOver(t, c, service+":80", v.device)
		})
	}
}

// TestPlainProgramsOfContainers: a server without SDP in a container that serves SDP too sees no byte
// of it, and a client without SDP does not wait.
func TestPlainProgramsOfContainers(t *testing.T) {
	needsRoot(t)
	dir := sharedDir(t)
	s, c := pair(t, options{dir: dir}, options{dir: dir})
	require.Equal(t, "ok", s.does(t, "plain :7001"))
	require.Equal(t, "ok", s.does(t, "listen tcp :7000"))
	isPlain(t, c, serverAddress+":7001")
	assert.NotContains(t, s.does(t, "seen"), "MPA")
	goesOver(t, c, at, "shm")
	require.Equal(t, "ok", c.does(t, "nets %s 50", at))
}

// TestKilledProcessesLeaveNothing kills clients and servers under load.
func TestKilledProcessesLeaveNothing(t *testing.T) {
	needsRoot(t)
	if testing.Short() {
		t.Skip("missing: time, because -short is set; a hundred containers take a while")
	}
	dir := sharedDir(t)
	s := start(t, options{dir: dir})
	require.Equal(t, "ok", s.does(t, "listen tcp :7000"))
	most := 0
	for i := range 100 {
		c := start(t, options{dir: dir})
		// A network of its own: the kernel takes a while to end that of a container.
		net := fmt.Sprintf("10.212.%d.", i)
		join(t, c, s, fmt.Sprint("wire", i), net+"1/24", net+"2/24")
		require.Equal(t, "ok", c.does(t, "load %s2:7000", net))
		require.Equal(t, "ok", c.does(t, "loaded 20"), "%d", i)
		if i%10 == 9 { // the server too, whose next one has its name
			s.kill()
			c.kill()
			s = start(t, options{dir: dir})
			require.Equal(t, "ok", s.does(t, "listen tcp :7000"))
		}
		c.kill()
		most = max(most, len(files(t, dir)))
	}
	t.Logf("at most %d files", most)
	assert.Less(t, most, 60)
	for end := time.Now().Add(time.Minute); ; {
		// What is left, the next one removes that comes.
		last := start(t, options{dir: dir})
		require.Equal(t, "ok", last.does(t, "listen tcp :7001"))
		last.kill()
		if len(files(t, dir)) <= 8 {
			break
		}
		require.True(t, time.Now().Before(end), "%v", files(t, dir))
	}
	t.Log(files(t, dir))
}

func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := filepath.Glob(dir + "/*")
	require.NoError(t, err)
	for _, one := range entries {
		all = append(all, filepath.Base(one))
	}
	return all
}
