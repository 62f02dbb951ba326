package sdp

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/rules"
	"github.com/gosdp/gosdp/sdp/stats"
	"github.com/gosdp/gosdp/test/conntest"
)

// setRules lets a file with this text be the operator's until the test ends. PORT in it stands for
// the port of the address.
func setRules(t *testing.T, text, address string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(address)
	name := filepath.Join(t.TempDir(), "sdp.conf")
	require.NoError(t, os.WriteFile(name, []byte(strings.ReplaceAll(text, "PORT", port)), 0o600))
	t.Setenv(configVariable, name)
	policy.ReadRulesAgain()
	t.Cleanup(policy.ReadRulesAgain)
}

// needsSHM skips a test of connections that may move to shared memory where none does. The environment
// lists no devices until the test ends.
func needsSHM(t *testing.T) {
	t.Helper()
	if !haveSHM {
		t.Skip("missing: shared memory between the ends of a connection")
	}
	t.Setenv(devicesVariable, "")
}

// overOf returns what a Dial has just returned: "plain", "shm" if it has met its peer, or the device.
func overOf(c net.Conn) string {
	up, ok := c.(*Conn)
	switch {
	case !ok:
		return "plain"
	case met(up):
		return "shm"
	}
	return up.Device()
}

// used dials and returns what was used: overOf, or the text of the error.
func used(t *testing.T, d *Dialer, network, address string) string {
	t.Helper()
	c, err := (&Dialer{NetDialer: d.NetDialer, Config: patiently(d.Config)}).Dial(network, address)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	over := overOf(c)
	checkEcho(t, c)
	if over == "plain" {
		assert.IsType(t, (*net.TCPConn)(nil), c)
	}
	return over
}

// echoing returns a listener that serves both kinds of clients.
func echoing(t *testing.T, network, address string, config *Config) net.Listener {
	t.Helper()
	ln, err := (&ListenConfig{Config: patiently(config)}).Listen(t.Context(), network, address)
	require.NoError(t, err)
	echo(t, ln)
	return ln
}

func TestRuleOfDial(t *testing.T) {
	needsSHM(t)
	both := echoing(t, "tcp", "127.0.0.1:0", nil).Addr().String()
	plain, asked := serve(t, echoLines(func(c *net.TCPConn) { c.Close() }))
	byName := "localhost" + strings.TrimPrefix(both, "127.0.0.1")
	plainByName := "localhost" + strings.TrimPrefix(plain, "127.0.0.1")
	self := rules.Program()
	refused := func(line int) string { return fmt.Sprintf("sdp.conf:%d requires SDP: ", line) }
	for _, v := range []struct{ text, address, want string }{
		{"", both, "tcp"},
		{"", plain, "tcp"},
		{"use tcp client * *:*", both, "plain"},
		{"use tcp client * 127.0.0.0/8:PORT", both, "plain"},
		{"use tcp client * 127.0.0.0/8:1-2", both, "tcp"},
		{"use tcp client * 192.0.2.0/24:*", both, "tcp"},
		{"use tcp client " + self[:len(self)-1] + "? *:*", both, "plain"},
		{"use tcp client other *:*", both, "tcp"},
		{"use tcp server * *:*", both, "tcp"},
		{"use both client * *:PORT\nuse tcp client * *:*", both, "tcp"},
		{"use tcp client * *:PORT\nuse both client * *:*", both, "plain"},
		{"use both client * *:*", plain, "tcp"},
		{"\nuse sdp client * *:*", both, "shm"},
		{"\nuse sdp client * *:*", plain, refused(2)},
		// The rule depends on the address that the name stands for.
		{"use tcp client * 127.0.0.1:PORT", byName, "plain"},
		{"use tcp client * 192.0.2.1:PORT", byName, "tcp"},
		{"use sdp client * 127.0.0.0/8:PORT", byName, "shm"},
		{"use sdp client * 127.0.0.0/8:PORT", plainByName, refused(1)},
		{"use both client * 127.0.0.0/8:PORT", plainByName, "tcp"},
		{"use tcp client * 127.0.0.1:*", strings.Replace(both, "127.0.0.1", "0.0.0.0", 1), "plain"},
		{"use tcp client * 127.0.0.1:*", strings.Replace(both, "127.0.0.1", "[::ffff:127.0.0.1]", 1), "plain"},
	} {
		t.Run(v.text+" "+v.address, func(t *testing.T) {
			setRules(t, v.text, v.address)
			before := asked.Load()
			d := new(Dialer)
			if strings.Contains(v.want, "requires SDP") {
				d.Config = &Config{ReplyTimeout: 50 * time.Millisecond}
			}
			got := used(t, d, "tcp", v.address)
			if !strings.Contains(v.want, "requires SDP") {
				assert.Equal(t, v.want, got)
				if v.address == plain || v.address == plainByName {
					assert.Equal(t, before+1, asked.Load(), "connections for one Dial")
				}
				return
			}
			assert.Contains(t, got, v.want)
			_, err := d.Dial("tcp", v.address)
			var not *NotSDPError
			assert.ErrorAs(t, err, &not)
			var op *net.OpError
			require.ErrorAs(t, err, &op)
			assert.Equal(t, "dial tcp", op.Op+" "+op.Net)
		})
	}
}

func TestRuleOfListen(t *testing.T) {
	needsSHM(t)
	// A port that is free now, because a rule that names it is read before it is listened on.
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	fixed := probe.Addr().String()
	probe.Close()
	_, port, _ := net.SplitHostPort(fixed)
	for _, v := range []struct {
		rules, listen string
		meets, plain  bool // clients on network sdp, and clients of package net
	}{
		{"", "127.0.0.1:0", true, true},
		{"use tcp server * *:*", "127.0.0.1:0", false, true},
		{"use tcp listen * 127.0.0.0/8:PORT", fixed, false, true},
		{"use tcp listen * 127.0.0.0/8:1-65535", "127.0.0.1:0", false, true},
		{"use tcp server * 127.0.0.1:*", ":" + port, true, true},
		{"use tcp server * 0.0.0.0:*", ":" + port, false, true},
		{"use tcp server other *:*", "127.0.0.1:0", true, true},
		{"use tcp client * 192.0.2.1:*", "127.0.0.1:0", true, true},
		{"use sdp server * *:*", "127.0.0.1:0", true, false},
		{"use sdp server * 127.0.0.1:1-65535", "localhost:0", true, false},
	} {
		t.Run(v.rules+" "+v.listen, func(t *testing.T) {
			setRules(t, v.rules, fixed)
			ln := echoing(t, "tcp", v.listen, nil)
			_, port, _ := net.SplitHostPort(ln.Addr().String())
			checkMeets(t, "127.0.0.1:"+port, v.meets)
			c, err := net.Dial("tcp", "127.0.0.1:"+port)
			require.NoError(t, err)
			defer c.Close()
			if v.plain {
				checkEcho(t, c)
				return
			}
			c.Write([]byte("hello\n"))
			n, err := io.Copy(io.Discard, c)
			assert.True(t, n == 0 && (err == nil || strings.Contains(err.Error(), "reset")), "%d bytes, %v", n, err)
		})
	}
	t.Run("NewListener", func(t *testing.T) {
		setRules(t, "use tcp server * 127.0.0.1:*", fixed)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		wrapped, err := NewListener(struct{ net.Listener }{ln}, nil)
		require.NoError(t, err)
		echo(t, wrapped)
		checkMeets(t, ln.Addr().String(), false)
	})
}

// checkMeets checks whether a client on network sdp meets the server.
func checkMeets(t *testing.T, address string, meets bool) {
	t.Helper()
	if meets {
		assert.Equal(t, "shm", used(t, new(Dialer), "sdp", address))
		return
	}
	d := Dialer{Config: &Config{ReplyTimeout: 50 * time.Millisecond}}
	assert.Contains(t, used(t, &d, "sdp", address), "peer does not share memory")
}

// TestPrecedence: the program's Config, then the rules, then the environment, then the defaults.
func TestPrecedence(t *testing.T) {
	needsSHM(t)
	address := echoing(t, "tcp", "127.0.0.1:0", &Config{Devices: []string{"shm", "iwarp"}, Probe: loopback}).Addr().String()
	// The rules of the second column are about the client only, so the listener stays.
	for _, v := range []struct {
		devices     []string // the program's
		rules       string
		environment string
		network     string
		want        string
	}{
		{nil, "", "", "tcp", "tcp"},
		{nil, "", "iwarp", "tcp", "iwarp"},
		{nil, "", "tcp", "tcp", "plain"},
		{nil, "use tcp client * *:*", "iwarp", "tcp", "plain"},
		{nil, "use tcp client * *:*", "", "tcp", "plain"},
		{nil, "use both client * *:*", "tcp", "tcp", "plain"},
		{nil, "use sdp client * *:*", "iwarp", "tcp", "iwarp"},
		{nil, "use sdp client * *:*", "", "tcp", "shm"},
		{nil, "use sdp client * *:*", "tcp", "tcp", "requires SDP: "},
		{[]string{"iwarp"}, "use tcp client * *:*", "tcp", "tcp", "iwarp"},
		{[]string{"shm"}, "use tcp client * *:*", "tcp", "tcp", "tcp"},
		{[]string{"tcp"}, "use sdp client * *:*", "iwarp", "tcp", "plain"},
		{nil, "use tcp client * *:*", "iwarp", "sdp", "iwarp"},
		{nil, "use tcp client * *:*", "", "sdp", "shm"},
		{nil, "use tcp client * *:*", "nonsense", "tcp", "SDP_DEVICES=nonsense"},
	} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			setRules(t, v.rules, address)
			t.Setenv(devicesVariable, v.environment)
			got := used(t, &Dialer{Config: &Config{Devices: v.devices, Probe: loopback}}, v.network, address)
			if strings.ContainsAny(v.want, " =") {
				assert.Contains(t, got, v.want)
			} else {
				assert.Equal(t, v.want, got)
			}
		})
	}
}

func TestRulesDoNotApplyToUnixSockets(t *testing.T) {
	setRules(t, "use sdp client * *:*\nuse sdp server * *:*", ":1")
	name := filepath.Join(t.TempDir(), "s")
	ln := echoing(t, "unix", name, nil)
	c, err := net.Dial("unix", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	checkEcho(t, c)
	up, err := Dial("unix", name)
	require.NoError(t, err)
	up.Close()
}

// TestMistakeInRules: the program works as without the file, and says once what is wrong.
func TestMistakeInRules(t *testing.T) {
	needsSHM(t)
	address := echoing(t, "tcp", "127.0.0.1:0", nil).Addr().String()
	setRules(t, "use tcp client * *:*\nuse tpc client * *:*\n", address)
	stderr := os.Stderr
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	os.Stderr = w
	var text bytes.Buffer
	for range 3 {
		d := Dialer{Config: &Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}}
		assert.Equal(t, "tcp", used(t, &d, "tcp", address))
	}
	os.Stderr = stderr
	w.Close()
	said, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "sdp: SDP_CONFIG ignored: "+os.Getenv(configVariable)+":2: \"tpc\" after use: want sdp, tcp or both\n", string(said))
	assert.Equal(t, 1, strings.Count(text.String(), "rules file ignored"), text.String())
	assert.Contains(t, text.String(), "sdp.conf:2: ")
}

// TestRulesOfTwoProcesses: one file has rules for two programs, which dial the same server.
func TestRulesOfTwoProcesses(t *testing.T) {
	needsSHM(t)
	address := echoing(t, "tcp", "127.0.0.1:0", patient).Addr().String()
	setRules(t, "use tcp connect alpha *:PORT\nuse sdp connect bet? 127.0.0.0/8:*", address)
	for program, want := range map[string]string{
		"/usr/bin/alpha": "hello over plain, ",
		"beta":           "hello over shm, ",
		"gamma":          ", a *sdp.Conn\n", // on TCP, or in shared memory already
	} {
		cmd := conntest.Command("dial tcp " + address)
		cmd.Path, cmd.Args[0] = os.Args[0], program
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.Output()
		stdin.Close()
		require.NoError(t, err, "%s: %s", program, out)
		assert.Contains(t, string(out), want, program)
	}
	plain, _ := serve(t, func(*net.TCPConn) {}) // it closes, so that no client waits for a meeting
	cmd := conntest.Command("dial tcp " + plain)
	cmd.Path, cmd.Args[0] = os.Args[0], "beta"
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	out, err := cmd.Output()
	assert.Error(t, err)
	assert.Contains(t, string(out), os.Getenv(configVariable)+":2 requires SDP: ")
}

func TestRulesLog(t *testing.T) {
	needsSHM(t)
	dir := t.TempDir()
	plain, _ := serve(t, echoLines(func(c *net.TCPConn) { c.Close() }))
	setRules(t, "log min-level 7 destination file "+dir+"/log\nuse sdp client * 127.0.0.1:PORT\nuse tcp server * 127.0.0.1:*", plain)
	ln, err := Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln.Close()
	_, err = (&Dialer{Config: &Config{ReplyTimeout: 50 * time.Millisecond}}).Dial("tcp", plain)
	require.Error(t, err)
	_, err = Dial("tcp", ln.Addr().String())
	require.Error(t, err)
	files, err := filepath.Glob(dir + "/log*")
	require.NoError(t, err)
	require.Len(t, files, 1)
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	process := " " + rules.Program() + "[" + strconv.Itoa(os.Getpid()) + "] "
	_, port, _ := net.SplitHostPort(plain)
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		at, message, _ := strings.Cut(line, process)
		_, err := time.Parse(time.RFC3339, at)
		assert.NoError(t, err, line)
		want := [][2]string{
			{"listen tcp " + ln.Addr().String() + ": TCP only", " (line 3: use tcp server * 127.0.0.1:*)"},
			{"connect tcp " + plain + ": dial tcp ", " (line 2: use sdp client * 127.0.0.1:" + port + ")"},
			{"connect tcp " + ln.Addr().String() + ": dial tcp ", "connection refused (no rule)"},
		}[i]
		assert.True(t, strings.HasPrefix(message, want[0]) && strings.HasSuffix(message, want[1]), line)
	}
}

// TestRulesInSetupStats counts what a rule has made plain TCP under its own reason.
func TestRulesInSetupStats(t *testing.T) {
	needsSHM(t)
	address := echoing(t, "tcp", "127.0.0.1:0", nil).Addr().String()
	setRules(t, "use tcp client * *:*", address)
	before := SetupStats().Plain[stats.PlainRule]
	assert.Equal(t, "plain", used(t, new(Dialer), "tcp", address))
	assert.Equal(t, before+1, SetupStats().Plain[stats.PlainRule])
}

// TestSwitchedOffInSetupStats: a Dial is not counted as failed, or as the server's choice, if this
// program uses no SDP. The log says the same.
func TestSwitchedOffInSetupStats(t *testing.T) {
	needsSHM(t)
	address := echoing(t, "tcp", "127.0.0.1:0", nil).Addr().String()
	before := SetupStats().Plain
	var log logged
	assert.Equal(t, "plain", used(t, &Dialer{Config: &Config{
		Devices: []string{"tcp"}, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}}, "tcp", address))
	t.Setenv(devicesVariable, "tcp")
	assert.Equal(t, "plain", used(t, new(Dialer), "tcp", address))
	after := SetupStats().Plain
	assert.Equal(t, before[stats.PlainOff]+2, after[stats.PlainOff])
	assert.Equal(t, before[stats.PlainSetupFailed], after[stats.PlainSetupFailed])
	log.mu.Lock()
	defer log.mu.Unlock()
	assert.Contains(t, log.String(), "plain=off")
}

// TestDemandWithoutDeviceIsLogged: the default level has every Dial that fails because a rule asks
// for SDP, also if this end has no device.
func TestDemandWithoutDeviceIsLogged(t *testing.T) {
	needsSHM(t)
	plain, _ := serve(t, echoLines(func(c *net.TCPConn) { c.Close() }))
	for _, address := range []string{plain, "localhost" + strings.TrimPrefix(plain, "127.0.0.1")} {
		dir := t.TempDir()
		setRules(t, "log destination file "+dir+"/log\nuse sdp client * 127.0.0.1:PORT", plain)
		t.Setenv(devicesVariable, "tcp")
		_, err := Dial("tcp", address)
		require.ErrorContains(t, err, "sdp.conf:2 requires SDP: ")
		files, err := filepath.Glob(dir + "/log*")
		require.NoError(t, err)
		require.Len(t, files, 1, address)
		b, err := os.ReadFile(files[0])
		require.NoError(t, err)
		assert.Equal(t, 1, strings.Count(string(b), "\n"))
		assert.Contains(t, string(b), "connect tcp "+address+": dial tcp")
	}
}

// TestReasonsInTheRulesLog: it says of each connection why it is, or was, on TCP.
func TestReasonsInTheRulesLog(t *testing.T) {
	needsSHM(t)
	plain, _ := serve(t, func(c *net.TCPConn) {
		io.WriteString(c, "SSH-2.0")
		io.Copy(io.Discard, c)
	})
	for name, v := range map[string]struct {
		network string
		devices string
		peers   string
		lines   []string
	}{
		"too little traffic": {"tcp", "", "", []string{
			"connect tcp PEER: TCP, may move to shared memory (no rule)",
			"close OWN to PEER: stayed on TCP: too little traffic",
		}},
		"switched off": {"tcp4", "tcp", "", []string{"connect tcp4 PEER: plain TCP: SDP_DEVICES or Config.Devices says TCP (no rule)"}},
		"no device":    {"tcp", "iwarp", "", []string{"connect tcp PEER: plain TCP: shared memory may not or cannot be used, and both ends are on one host (no rule)"}},
		"asked":        {"tcp", "iwarp", "127.0.0.1", []string{`connect tcp PEER: plain TCP: peer at PEER does not speak SDP: answered "SSH-2.0" (no rule)`}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			setRules(t, "log destination file "+dir+"/log min-level 1", plain)
			t.Setenv(devicesVariable, v.devices)
			t.Setenv(peersVariable, v.peers)
			c, err := Dial(v.network, plain)
			require.NoError(t, err)
			own := c.LocalAddr().String()
			require.NoError(t, c.Close())
			files, err := filepath.Glob(dir + "/log*") // the name of another user's than root has a number
			require.NoError(t, err)
			require.Len(t, files, 1)
			b, err := os.ReadFile(files[0])
			require.NoError(t, err)
			var said []string
			for line := range strings.Lines(string(b)) {
				_, text, _ := strings.Cut(strings.TrimSpace(line), "] ")
				said = append(said, strings.NewReplacer(plain, "PEER", own, "OWN").Replace(text))
			}
			assert.Equal(t, v.lines, said)
		})
	}
}
