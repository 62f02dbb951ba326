package rules

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustParse(t testing.TB, text string) *Set {
	t.Helper()
	s, err := Parse("f", text)
	require.NoError(t, err)
	return s
}

func TestMatchName(t *testing.T) {
	for _, v := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "nats-server", true}, {"db2*", "db2", true}, {"db2*", "db2x", true}, {"db2*", "db", false},
		{"t?cp", "ttcp", true}, {"t?cp", "tcp", false}, {"?", "", false}, {"", "", true}, {"", "x", false},
		{"*server", "nats-server", true}, {"*server", "server2", false}, {"a*b*c", "aXbYbZc", true}, {"a*b*c", "aXbYbZ", false},
		{"**", "x", true}, {"x**", "x", true}, {"x", "xy", false}, {"xy", "x", false}, {"nats", "NATS", false},
	} {
		assert.Equal(t, v.want, matchName(v.pattern, v.name), "%q %q", v.pattern, v.name)
	}
	// With backtracking into every star this takes for ever.
	assert.False(t, matchName(strings.Repeat("*a", 200)+"b", strings.Repeat("a", 10_000)))
}

func TestFirstMatchDecides(t *testing.T) {
	s := mustParse(t, `
use tcp client * 10.1.0.0/16:*
use sdp client * 10.0.0.0/8:5000-6000
use tcp server * 0.0.0.0:80
use both client * [fd00::]/8:*
use sdp server * 10.0.0.1:*
`)
	for _, v := range []struct {
		role Role
		at   string
		line int // 0: no rule
	}{
		{Client, "10.1.2.3:5000", 2},
		{Client, "10.2.0.0:5000", 3},
		{Client, "10.2.0.0:6000", 3},
		{Client, "10.2.0.0:4999", 0},
		{Client, "10.2.0.0:6001", 0},
		{Client, "[::ffff:10.1.2.3]:5000", 2},
		{Client, "[fd00::1%eth0]:1", 5},
		{Client, "[fe80::1%eth0]:1", 0},
		{Client, "10.0.0.1:80", 0},
		{Server, "10.1.2.3:5000", 0},
		{Server, "10.0.0.1:80", 6},
		{Server, "0.0.0.0:80", 4},
		{Server, "[::]:80", 4},
		{Server, "[::]:81", 0},
	} {
		a := netip.MustParseAddrPort(v.at)
		r, known := s.Decide(v.role, a.Addr(), a.Port())
		require.True(t, known, v.at)
		line := 0
		if r != nil {
			line = r.Line
		}
		assert.Equal(t, v.line, line, "%v %s", v.role, v.at)
	}
}

func TestWhatIsNotKnownYet(t *testing.T) {
	for _, v := range []struct {
		text  string
		port  uint16
		known bool
		match bool
	}{
		{"", 80, true, false},
		{"use tcp client * *:*", 0, true, true},
		{"use tcp client * *:80", 80, true, true},
		{"use tcp client * *:80", 81, true, false},
		{"use tcp client * *:80", 0, false, false},
		{"use tcp client * 10.0.0.0/8:80", 80, false, false},
		{"use tcp client * 10.0.0.0/8:80\nuse tcp client * *:*", 81, true, true},
		{"use tcp client * 10.0.0.0/8:*\nuse tcp client * *:*", 81, false, false},
		{"use tcp server * 10.0.0.0/8:*\nuse tcp client * *:*", 81, true, true},
	} {
		r, known := mustParse(t, v.text).Decide(Client, netip.Addr{}, v.port)
		assert.Equal(t, v.known, known, v.text)
		assert.Equal(t, v.match, r != nil, v.text)
	}
}

func TestFor(t *testing.T) {
	s := mustParse(t, "log min-level 7\nuse tcp client nats* *:*\nuse sdp client etcd *:*\nuse both client * *:*")
	own := s.For("nats-server")
	require.Len(t, own.Rules, 2)
	assert.Equal(t, []int{2, 4}, []int{own.Rules[0].Line, own.Rules[1].Line})
	assert.True(t, own.Log.Enabled(LevelSummary))
	assert.Len(t, s.Rules, 3, "For changes nothing")
}

func TestProgram(t *testing.T) {
	args := os.Args
	defer func() { os.Args = args }()
	for arg, want := range map[string]string{"/usr/bin/nats-server": "nats-server", "./x": "x", "busybox": "busybox"} {
		os.Args = []string{arg}
		assert.Equal(t, want, Program())
	}
	os.Args = nil
	assert.Empty(t, Program())
}

func TestShadow(t *testing.T) {
	for _, v := range []struct {
		text string
		line int // that shadows the second rule; 0: none
	}{
		{"use tcp client * *:*\nuse sdp client nats *:*", 1},
		{"use tcp client nats *:*\nuse sdp client * *:*", 0},
		{"use tcp client n* *:*\nuse sdp client nats *:*", 1},
		{"use tcp client n* *:*\nuse sdp client na* *:*", 0}, // more than is worth finding out
		{"use tcp server * *:*\nuse sdp client * *:*", 0},
		{"use tcp client * 10.0.0.0/8:*\nuse sdp client * 10.1.0.0/16:80", 1},
		{"use tcp client * 10.1.0.0/16:*\nuse sdp client * 10.0.0.0/8:80", 0},
		{"use tcp client * 10.0.0.0/8:*\nuse sdp client * *:80", 0},
		{"use tcp client * *:80-90\nuse sdp client * *:85", 1},
		{"use tcp client * *:80-90\nuse sdp client * *:85-91", 0},
		{"use tcp client * *:1-65535\nuse sdp client * *:*", 0},
	} {
		line := 0
		if r := mustParse(t, v.text).Shadow(1); r != nil {
			line = r.Line
		}
		assert.Equal(t, v.line, line, v.text)
	}
}

func TestDecideAllocatesNothing(t *testing.T) {
	s := mustParse(t, strings.Repeat("use tcp client * 192.0.2.0/24:1-1000\n", 100)+"use sdp client * [fd00::]/8:*")
	a := netip.MustParseAddr("fd00::1")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if r, known := s.Decide(Client, a, 80); r == nil || !known {
			t.Fail()
		}
	}))
}

func BenchmarkDecide(b *testing.B) {
	s := mustParse(b, strings.Repeat("use tcp client * 192.0.2.0/24:1-1000\n", 50)+"use sdp client * *:*")
	a := netip.MustParseAddr("10.0.0.1")
	b.ReportAllocs()
	for b.Loop() {
		s.Decide(Client, a, 80)
	}
}
