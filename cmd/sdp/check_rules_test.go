package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rulesFile writes a file of rules and returns its name.
func rulesFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "sdp.conf")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// runTool runs the tool in a process of its own, and returns what it has printed and its exit
// status.
func runTool(t *testing.T, env []string, args ...string) (string, int) {
	t.Helper()
	cmd := toolCommand(t, args...)
	cmd.Env = append(cmd.Env, env...)
	out, _ := cmd.CombinedOutput()
	require.NotNil(t, cmd.ProcessState)
	return string(out), cmd.ProcessState.ExitCode()
}

func TestCheckRules(t *testing.T) {
	file := rulesFile(t, `# the whole grammar
log min-level 7 destination syslog
use tcp  client *     10.9.0.0/16:*
use both client nats* *:4222
use sdp  client etcd* [fd00::]/8:2379
use tcp  server *     *:22-25
use sdp  server ssh   0.0.0.0:22
share nginx with 33 root
`)
	out, status := runTool(t, nil, "check-rules", file)
	assert.Zero(t, status)
	assert.Equal(t, `line 2: log destination syslog min-level 7
    Each Dial and Listen is logged to the system's log.
line 3: use tcp client * 10.9.0.0/16:*
    All programs: only TCP on the way to 10.9.0.0/16, any port.
line 4: use both client nats* *:4222
    Programs named nats*: SDP if possible, otherwise TCP, on the way to any address, port 4222.
line 5: use sdp client etcd* [fd00::]/8:2379
    Programs named etcd*: only SDP on the way to fd00::/8, port 2379. If that is not possible, the Dial fails.
line 6: use tcp server * *:22-25
    All programs: only TCP for clients that come to any address, ports 22 to 25.
line 7: use sdp server ssh 0.0.0.0:22
    Programs named ssh: only SDP for clients that come to 0.0.0.0 (which stands for listening on all addresses), port 22. Connections of other clients are closed.
    This rule never decides, because line 6 matches everything that it matches.
line 8: share nginx with 33 root
    Programs named nginx may share memory with programs of the users 33, 0 (root), if those allow it, too.
Where no rule matches, programs behave as without the file.
`, out)
	for _, v := range []struct {
		args []string
		want string
	}{
		{[]string{"-connect", file, "nats", "10.9.1.1:4222"}, "nats connects to 10.9.1.1:4222: TCP only.\n    line 3: use tcp client * 10.9.0.0/16:*\n"},
		{[]string{"-connect", file, "/usr/bin/nats", "10.8.1.1:4222"}, "line 4: use both client nats* *:4222\n"},
		{[]string{"-connect", file, "etcdctl", "[fd00::1]:2379"}, "SDP only. If that is not possible, the Dial fails.\n    line 5: "},
		{[]string{"-listen", file, "smtpd", ":25"}, "smtpd listens on [::]:25: TCP only.\n    line 6: "},
		{[]string{"-listen", file, "smtpd", ":26"}, ": as without rules: TCP, which may move to shared memory, or SDP over RDMA hardware.\n    no rule matches\n"},
		{[]string{file, "x", "127.0.0.1:22"}, "x listens on 127.0.0.1:22: TCP only.\n    line 6: use tcp server * *:22-25\nx connects to 127.0.0.1:22: as without rules"},
		{[]string{"-connect", rulesFile(t, "use tcp client * 127.0.0.0/8:*\n"), "x", "0.0.0.0:80"}, "line 1: use tcp client * 127.0.0.0/8:*"},
		{[]string{"-connect", file, "x", ":22"}, "x connects to 127.0.0.1:22: as without rules"},
	} {
		out, status := runTool(t, nil, append([]string{"check-rules"}, v.args...)...)
		assert.Zero(t, status, v.args)
		assert.Contains(t, out, v.want, v.args)
		if v.args[0] != file {
			assert.NotEqual(t, strings.Contains(out, "listens"), v.args[0] == "-connect", v.args)
		}
	}
}

func TestCheckRulesMistakes(t *testing.T) {
	file := rulesFile(t, "use tpc client * *:*\n\nuse tcp client \x1b[2J 10.0.0.1\n")
	for _, args := range [][]string{{file}, {file, "nats", "10.0.0.1:80"}} {
		out, status := runTool(t, nil, append([]string{"check-rules"}, args...)...)
		assert.Equal(t, 1, status)
		assert.Contains(t, out, file+`:1: "tpc" after use: want sdp, tcp or both`)
		assert.Contains(t, out, file+`:3: program "\x1b[2J"`)
		assert.Contains(t, out, "Programs ignore the whole file")
	}
	out, status := runTool(t, nil, "check-rules", t.TempDir())
	assert.Equal(t, 1, status)
	assert.Contains(t, out, "is a directory")
	good := rulesFile(t, "")
	for _, args := range [][]string{{}, {good, "nats"}, {"-listen", good}, {"-x", good}} {
		_, status := runTool(t, nil, append([]string{"check-rules"}, args...)...)
		assert.Equal(t, 2, status, args)
	}
	for _, address := range []string{"10.0.0.1", "10.0.0.1:http", "10.0.0.1:0"} {
		_, status := runTool(t, nil, "check-rules", good, "nats", address)
		assert.Equal(t, 1, status, address)
	}
}

// TestCheckObeysRules of the program that -program names.
func TestCheckObeysRules(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	address := ln.Addr().String()
	file := rulesFile(t, "use tcp client alpha *:*\nuse sdp client beta *:*\n")
	var report struct {
		Rules struct {
			File, Program, Mistake string
			Count, Own             int
		}
		Path struct{ Code, Rule, Reason string }
	}
	for program, want := range map[string][2]string{
		"alpha": {"rule", file + ":1: use tcp client alpha *:*"},
		"beta":  {"plain_peer", file + ":2: use sdp client beta *:*"},
		"gamma": {"plain_peer", ""},
	} {
		out, status := runTool(t, []string{"SDP_CONFIG=" + file, "SDP_DEVICES="}, "check", "-json", "-program", program, address)
		assert.Equal(t, 1, status, program)
		report.Path.Rule = ""
		require.NoError(t, json.Unmarshal([]byte(out), &report), out)
		assert.Equal(t, program, report.Rules.Program)
		assert.Equal(t, 2, report.Rules.Count)
		assert.Equal(t, want[1], report.Path.Rule, program)
		assert.Equal(t, want[0], report.Path.Code, program)
	}
	out, _ := runTool(t, []string{"SDP_CONFIG=" + file, "SDP_DEVICES="}, "check", "-program", "beta", address)
	assert.Contains(t, out, address+": no SDP, so a Dial fails: ")
	assert.NotContains(t, out, "plain TCP")
	out, status := runTool(t, []string{"SDP_CONFIG=" + file, "SDP_DEVICES=tcp"}, "check", "-program", "beta", address)
	assert.Equal(t, 1, status)
	assert.Contains(t, out, address+": no SDP, so a Dial fails: ")
	assert.Contains(t, out, file+":2 requires SDP")
	bad := rulesFile(t, "nonsense")
	out, _ = runTool(t, []string{"SDP_CONFIG=" + bad}, "check", address)
	assert.Contains(t, out, "rules: programs ignore the file: "+bad+":1: unknown statement")
}

// TestHelpFlag: -h prints a command's help. The go command has its own.
func TestHelpFlag(t *testing.T) {
	var ofGo []string
	for _, c := range goCommands() {
		ofGo = append(ofGo, c.name)
	}
	for _, c := range commands() {
		if slices.Contains(ofGo, c.name) {
			continue
		}
		for _, flag := range []string{"-h", "--help"} {
			out, status := runTool(t, nil, c.name, flag)
			assert.Zero(t, status, c.name)
			assert.Contains(t, out, "usage: sdp "+c.name+" ", c.name)
		}
		out, status := runTool(t, nil, c.name, "-no-such-flag")
		assert.Equal(t, 2, status, "%s: %s", c.name, out)
	}
}
