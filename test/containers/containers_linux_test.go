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

// goesOver has the client dial until a connection goes over the device. On a busy machine a
// listener may not answer a claim in time, and the connection is plain TCP.
func goesOver(t *testing.T, c *container, network, address, device string) {
	t.Helper()
	last := ""
	assert.Eventually(t, func() bool {
		last = c.does(t, "dial %s %s 1", network, address)
		return strings.HasPrefix(last, "map["+device+":1]")
	}, 10*time.Second, 10*time.Millisecond, "it went over something else than %s", device)
	if t.Failed() {
		t.Log("the last answer: ", last)
		t.Log("the client says: ", c.does(t, "log"))
	}
}

// staysOn has the client dial twenty times over shm. On a busy machine, a listener or a dialler may be late
// (shmdir.AskWithin), and a listener that has waited for a late dialler answers none for some seconds
// (shmdir.VainTimes). Over tcp, such a connection is plain TCP, and the log must say so for each. Then the
// twenty are repeated.
func staysOn(t *testing.T, c *container, network, address string) {
	t.Helper()
	before := len(c.does(t, "log"))
	for begin, wasLate := time.Now(), false; ; time.Sleep(250 * time.Millisecond) {
		answer := c.does(t, "dial %s %s 20", network, address)
		if strings.HasPrefix(answer, "map[shm:20] ") {
			return
		}
		log := c.does(t, "log")[before:]
		before += len(log)
		wasLate = wasLate || isLate.MatchString(log)
		plain := len(isLate.FindAllString(log, -1)) + len(isRefused.FindAllString(log, -1))
		require.True(t, wasLate, "%s: %s", answer, log)
		require.Contains(t, answer, fmt.Sprintf("tcp:%d]", plain), log)
		require.Less(t, time.Since(begin), 20*time.Second, "%s: %s", answer, log)
	}
}

var (
	isLate    = regexp.MustCompile(unused + `(nothing shows that the (listener|server of the channel) has accepted|the listener has given up|more than 50ms ago)`)
	isRefused = regexp.MustCompile(unused + `the other end has left`)
)

// unused begins to match a line of the log that says why a device is not used.
const unused = `DEBUG msg="sdp: a device is not used"[^|]*`

// isPlain has the client dial; each connection must be plain TCP.
func isPlain(t *testing.T, c *container, address string) {
	t.Helper()
	assert.Regexp(t, `^map\[tcp:20\]`, c.does(t, "dial tcp %s 20", address))
}

const at = serverAddress + ":7000"

// again has the client dial twice, without an announcement the second time, until both went over shm.
func again(t *testing.T, c *container, forgets, address string) {
	t.Helper()
	both := regexp.MustCompile(`^map\[shm:1\] .*; [1-9]\d* removed; map\[shm:1\]`)
	last := ""
	assert.Eventually(t, func() bool {
		last = c.does(t, "again %s tcp %s", forgets, address)
		return both.MatchString(last)
	}, 10*time.Second, time.Millisecond, "the second dial went over something else")
	t.Log(last)
}

// TestContainersShareMemory: two containers with one directory use shm, on any address of the server.
func TestContainersShareMemory(t *testing.T) {
	needsRoot(t)
	for name, listen := range map[string]string{"an address": at, "every address": ":7000"} {
		for _, network := range []string{"tcp", "sdp"} {
			t.Run(name+" "+network, func(t *testing.T) {
				dir := sharedDir(t)
				s, c := pair(t, options{dir: dir}, options{dir: dir})
				require.Equal(t, "ok", s.does(t, "listen %s %s", network, listen))
				goesOver(t, c, network, at, "shm")
				staysOn(t, c, network, at)
			})
		}
	}
}

// TestNextDial: the dial after one over shm uses the channel of that one, or the socket of its claim, so
// it does not look for an announcement.
func TestNextDial(t *testing.T) {
	needsRoot(t)
	for _, v := range []struct{ how, forgets string }{
		{"", "nothing"},
		{"", "claims"},
		{"", "channels"},
		{"wrapped", "claims"},
		{"shared", "claims"},
	} {
		t.Run(fmt.Sprintf("%s without %s", v.how, v.forgets), func(t *testing.T) {
			dir := sharedDir(t)
			s, c := pair(t, options{dir: dir}, options{dir: dir})
			require.Equal(t, "ok", s.does(t, "listen tcp %s %s", at, v.how))
			again(t, c, v.forgets, at)
		})
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
		goesOver(t, c, "tcp", at, "shm")
		if i%2 == 0 { // a connection that no Accept returns delays the end of the channels
			require.Equal(t, "ok", s.does(t, "refrain"))
			require.Equal(t, "ok", c.does(t, "hold %s", at))
		}
		require.Equal(t, "ok", s.does(t, "unlisten"))
		require.Equal(t, "ok", s.does(t, "plain %s", at))
		assert.Regexp(t, `^map\[tcp:1\]`, c.does(t, "dial tcp %s 1", at))
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
		goesOver(t, c, "tcp", at, "shm") // a channel is kept, and the socket of a claim
		require.Equal(t, "ok", s.does(t, "hand-out"))
		before := len(c.does(t, "log"))
		isPlain(t, c, at)
		assert.NotContains(t, c.does(t, "log")[before:], "nothing shows")
		require.Equal(t, "ok", s.does(t, "accept"))
	}
	goesOver(t, c, "tcp", at, "shm")
	assert.Equal(t, fmt.Sprintf("60 %q", strings.Repeat("secret", 60*(100/6+1))), s.does(t, "seen"))
}

// TestAnotherSource: a channel is not used for a connection from another address than the one before,
// because the server does not expect that there. It is plain TCP, and a server sees no Request.
func TestAnotherSource(t *testing.T) {
	needsRoot(t)
	dir := sharedDir(t)
	s, c := pair(t, options{dir: dir}, options{dir: dir})
	c.run(t, "ip", "address", "add", "10.211.0.3/24", "dev", "wire")
	require.Equal(t, "ok", s.does(t, "listen tcp %s", at))
	goesOver(t, c, "tcp", at, "shm")
	const reason = "nothing shows that the server of the channel has accepted the connection"
	for shared := 0; ; { // on a busy machine, the channel may be closed before the second dial
		c.run(t, "ip", "route", "replace", serverAddress+"/32", "dev", "wire", "src", "10.211.0.3")
		before := len(c.does(t, "log"))
		answer := c.does(t, "dial tcp %s 1", at) // it exchanges the program's bytes
		if strings.Contains(c.does(t, "log")[before:], reason) {
			assert.Regexp(t, `^map\[tcp:1\]`, answer)
			break
		}
		shared++
		require.Less(t, shared, 3, "%s: %s", answer, c.does(t, "log")[before:])
		c.run(t, "ip", "route", "delete", serverAddress+"/32")
		goesOver(t, c, "tcp", at, "shm")
	}
	goesOver(t, c, "tcp", at, "shm")
}

// TestLateConnection: a dialler whose connection takes longer than a listener would wait sends no
// Request, and uses plain TCP. Which reason the log gives depends on whether the listener has answered when
// the dialler looks, and whether it still waits.
func TestLateConnection(t *testing.T) {
	needsRoot(t)
	for forgets, reason := range map[string]string{
		"claims":   "more than 50ms ago|nothing shows that the (server of the channel|listener) has accepted",
		"channels": "more than 50ms ago|nothing shows that the listener has accepted|the listener has given up",
	} {
		t.Run("without "+forgets, func(t *testing.T) {
			dir := sharedDir(t)
			s, c := pair(t, options{dir: dir}, options{dir: dir})
			require.Equal(t, "ok", s.does(t, "listen tcp %s", at))
			goesOver(t, c, "tcp", at, "shm")
			require.Equal(t, "ok", c.does(t, "forget %s", forgets))
			s.run(t, "ip", "link", "set", "wire", "down")
			begin := time.Now()
			require.NoError(t, c.say(fmt.Sprintf("dial tcp %s 1", at)))
			require.Eventually(t, func() bool {
				sockets, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", c.cmd.Process.Pid))
				require.NoError(t, err)
				return strings.Contains(string(sockets), " 02 ") && time.Since(begin) > 200*time.Millisecond // SYN-SENT
			}, 5*time.Second, time.Millisecond)
			s.run(t, "ip", "link", "set", "wire", "up")
			assert.Regexp(t, `^map\[tcp:1\]`, c.answer(t))
			assert.Regexp(t, reason, c.does(t, "log"))
		})
	}
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
	assert.Regexp(t, `^map\[tcp:1\]`, c.does(t, "dial tcp [fd00:211::2]:7000 1"), "it was not announced yet")
	goesOver(t, c, "tcp", "[fd00:211::2]:7000", "shm")
	for _, address := range []string{"[fd00:211::2]:7000", at} { // of a socket of both families
		again(t, c, "claims", address)
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
		{"another user", options{dir: sticky}, options{dir: sticky, uid: 1000}, "permission denied|the peer's user has the uid 0, ours 1000"},
		{"another user namespace", options{dir: sticky}, options{dir: sticky, users: true}, "its owner has no uid"},
		{"everybody may write", options{dir: open}, options{dir: open}, "every user may replace files in it: its mode is 0777"},
		{"read-only for the client", options{dir: dir}, options{dir: dir, env: readOnly}, "it is read-only"},
		{"read-only for the server", options{dir: dir, env: readOnly}, options{dir: dir}, "it is read-only"},
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
// begun to expect a Request, keeps its connection, and a server that speaks first hardly waits.
func TestClientThatCannotGoOn(t *testing.T) {
	needsRoot(t)
	dir := sharedDir(t)
	s, c := pair(t, options{dir: dir}, options{dir: dir, env: []string{readOnlyVariable + "=1"}})
	require.Equal(t, "ok", s.does(t, "greet :7000"))
	assert.Less(t, took(t, c.does(t, "greeted %s 20", at)), time.Second)
	assert.Contains(t, c.does(t, "log"), "it is read-only")
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
			goesOver(t, c, "tcp", at, v.device)
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
	goesOver(t, c, "tcp", at, "shm") // without the relay
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
			goesOver(t, c, "tcp", service+":80", v.device)
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
	goesOver(t, c, "tcp", at, "shm")
	assert.Regexp(t, `^map\[tcp:50\]`, c.does(t, "nets %s 50", at))
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
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(500 * time.Millisecond) {
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

var duration = regexp.MustCompile(`\] (.*)$`)

// took returns the median time of an answer to dial.
func took(t *testing.T, answer string) time.Duration {
	t.Helper()
	found := duration.FindStringSubmatch(answer)
	require.NotNil(t, found, answer)
	d, err := time.ParseDuration(found[1])
	require.NoError(t, err)
	return d
}
