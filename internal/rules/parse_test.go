package rules

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/watchdog"
)

func TestRules(t *testing.T) {
	any4, host := netip.MustParsePrefix("192.168.1.0/24"), netip.MustParsePrefix("10.0.0.1/32")
	for text, want := range map[string]Rule{
		"use sdp connect * 192.168.1.0/24:*":            {1, SDP, Client, "*", any4, 0, 0},
		"use tcp server ttcp* *:22-25":                  {1, TCP, Server, "ttcp*", netip.Prefix{}, 22, 25},
		"use both listen t?cp 10.0.0.1:8080":            {1, Both, Server, "t?cp", host, 8080, 8080},
		"use both client db 10.0.0.1/32:1-65535":        {1, Both, Client, "db", host, 1, 65535},
		"use sdp connect * 192.168.1.77/24:*":           {1, SDP, Client, "*", any4, 0, 0}, // libsdp lets this match nothing
		"use sdp client * [fd00::1]:443":                {1, SDP, Client, "*", netip.MustParsePrefix("fd00::1/128"), 443, 443},
		"use sdp client * [1234:5678::0]/64:*":          {1, SDP, Client, "*", netip.MustParsePrefix("1234:5678::/64"), 0, 0},
		"use sdp client * 1234:5678::0/64:*":            {1, SDP, Client, "*", netip.MustParsePrefix("1234:5678::/64"), 0, 0},
		"use tcp server * 0.0.0.0:*":                    {1, TCP, Server, "*", netip.MustParsePrefix("0.0.0.0/32"), 0, 0},
		"\t use  tcp\tserver a#b *:* # the rest":        {1, TCP, Server, "a#b", netip.Prefix{}, 0, 0},
		"use tcp server * * : 22 - 25":                  {1, TCP, Server, "*", netip.Prefix{}, 22, 25},
		"use tcp server * 192.168.1.0 / 24 : 22":        {1, TCP, Server, "*", any4, 22, 22},
		"use tcp server * *:0-1023":                     {1, TCP, Server, "*", netip.Prefix{}, 1, 1023},
		"use tcp server * *:80# http":                   {1, TCP, Server, "*", netip.Prefix{}, 80, 80},
		"use tcp server * *:80#":                        {1, TCP, Server, "*", netip.Prefix{}, 80, 80},
		"\ufeffuse tcp server * *:*\r\n\r\n# no more\r": {1, TCP, Server, "*", netip.Prefix{}, 0, 0},
	} {
		s, err := Parse("f", text)
		if !assert.NoError(t, err, text) {
			continue
		}
		require.Len(t, s.Rules, 1, text)
		assert.Equal(t, want, s.Rules[0], text)
		again, err := Parse("f", s.Rules[0].String())
		require.NoError(t, err, "%v", &s.Rules[0])
		assert.Equal(t, want, again.Rules[0])
	}
}

func TestMain(m *testing.M) {
	passwd = "testdata/passwd"
	os.Exit(m.Run())
}

func TestShares(t *testing.T) {
	s := mustParse(t, "share * with 33 www-data\nshare pg# with postgres # a comment\nshare db? with 7#\n")
	www, postgres := User{"www-data", 1033}, User{"postgres", 5432}
	require.Equal(t, []Share{{1, "*", []User{{"", 33}, www}}, {2, "pg#", []User{postgres}}, {3, "db?", []User{{"", 7}}}}, s.Shares)
	for program, want := range map[string][]int{"db1": {33, 1033, 7}, "nginx": {33, 1033}, "pg#": {33, 1033, 5432}} {
		assert.Equal(t, want, s.For(program).UIDs(), program)
	}
	assert.Nil(t, mustParse(t, "share db with 7").For("nginx").UIDs())
	again := mustParse(t, s.Shares[0].String()+"\n"+s.Shares[1].String()+"\n"+s.Shares[2].String())
	assert.Equal(t, s.Shares, again.Shares)
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"USE tcp server * *:*":                     `unknown statement "USE": want use, share or log`,
		"\x7fELF\x02\x01":                          `unknown statement "\x7fELF\x02\x01": want use, share or log`,
		strings.Repeat("x", 5000):                  `unknown statement "` + strings.Repeat("x", 40) + `"...: want use, share or log`,
		"use tcp server *:*":                       `got 3 words after use: want use sdp|tcp|both server|client PROGRAM ADDRESS:PORT`,
		"use":                                      `got 0 words after use: want use sdp|tcp|both server|client PROGRAM ADDRESS:PORT`,
		"use udp server * *:*":                     `"udp" after use: want sdp, tcp or both`,
		"use tcp peer * *:*":                       `role "peer": want server, listen, client or connect`,
		"use tcp server /usr/bin/x *:*":            `program "/usr/bin/x": want a name without a directory`,
		"use tcp server db[12] *:*":                `program "db[12]": want a name, in which * and ? are the only wildcards`,
		"use tcp server * 10.0.0.1":                `"10.0.0.1" has no port: want ADDRESS:PORT, such as *:*`,
		"use tcp server * [fd00::1]":               `"[fd00::1]" has no port: want ADDRESS:PORT, such as *:*`,
		"use tcp server * fd00::1:80":              `address "fd00::1": want an IPv6 address in brackets, such as [fd00::1]:80`,
		"use tcp server * [fd00::1:80":             `address "[fd00::1": missing closing bracket`,
		"use tcp server * [10.0.0.1]:80":           `address "[10.0.0.1]": IPv4 address in brackets`,
		"use tcp server * [fe80::1%eth0]:80":       `address "[fe80::1%eth0]": want an address without a zone`,
		"use tcp server * [::ffff:10.0.0.1]:80":    `address "[::ffff:10.0.0.1]": want the IPv4 address, not its IPv4-mapped form`,
		"use tcp server * db.example:80":           `address "db.example": want *, or an IP address with or without /BITS`,
		"use tcp server * 10.0.0.256:80":           `address "10.0.0.256": want *, or an IP address with or without /BITS`,
		"use tcp server * 10.0.0.0/33:80":          `address "10.0.0.0/33": prefix of "33" bits: want 0 to 32`,
		"use tcp server * [fd00::]/129:80":         `address "[fd00::]/129": prefix of "129" bits: want 0 to 128`,
		"use tcp server * 10.0.0.0/:80":            `address "10.0.0.0/": prefix of "" bits: want 0 to 32`,
		"use tcp server * :80":                     `address "": want *, or an IP address with or without /BITS`,
		"use tcp server * *:0":                     `port "0": want * or 1 to 65535`,
		"use tcp server * *:0-0":                   `port "0": want * or 1 to 65535`,
		"use tcp server * *:-22":                   `port "": want * or 1 to 65535`,
		"use tcp# server * *:*":                    `got 1 words after use: want use sdp|tcp|both server|client PROGRAM ADDRESS:PORT`,
		"use tcp server * *:65536":                 `port "65536": want * or 1 to 65535`,
		"use tcp server * *:http":                  `port "http": want * or 1 to 65535`,
		"use tcp server * *:22-":                   `port "": want * or 1 to 65535`,
		"use tcp server * *:25-22":                 `ports "25-22": first port is greater than last`,
		"use tcp server * 10.0.0.1:80 81":          `"81" after "10.0.0.1:80": want nothing after ADDRESS:PORT`,
		"share nginx":                              `want share PROGRAM with USER ...`,
		"share nginx with":                         `want share PROGRAM with USER ...`,
		"share nginx to 33":                        `want share PROGRAM with USER ...`,
		"share /usr/bin/x with 33":                 `program "/usr/bin/x": want a name without a directory`,
		"share * with 33 4294967296":               `user "4294967296": not in testdata/passwd; want a name from there, or a number`,
		"share * with nobody":                      `user "nobody": not in testdata/passwd; want a name from there, or a number`,
		"share * with broken":                      `user "broken": malformed line in testdata/passwd`,
		"log verbose":                              `"verbose" after log: want destination or min-level`,
		"log min-level":                            `missing value after min-level`,
		"log min-level 10":                         `min-level "10": want 1 to 9`,
		"log min-level ten":                        `min-level "ten": want 1 to 9`,
		"log destination":                          `missing value after destination`,
		"log destination printer":                  `destination "printer": want stderr, syslog or file NAME`,
		"log destination file":                     `missing name after destination file`,
		"log destination file ../../etc/cron.d/x":  `file "../../etc/cron.d/x": want a name that does not contain two dots`,
		"log min-level 7 destination stderr extra": `"extra" after log: want destination or min-level`,
	} {
		s, err := Parse("/etc/sdp.conf", "# first\n\n"+text+"\nuse both client * *:*")
		assert.Nil(t, s, text)
		assert.EqualError(t, err, "/etc/sdp.conf:3: "+want, text)
	}
}

// TestCommentAfterFile: a # belongs to the name of a file.
func TestCommentAfterFile(t *testing.T) {
	s, err := Parse("f", "log destination file a#b min-level 7# all")
	require.NoError(t, err)
	assert.Equal(t, "a#b", s.Log.Name)
	assert.Equal(t, 7, s.Log.MinLevel)
}

func TestAllMistakesAreFound(t *testing.T) {
	_, err := Parse("f", "nonsense\nuse tcp server * *:*\nuse\n")
	require.IsType(t, Errors{}, err)
	assert.Len(t, err, 2)
	assert.EqualError(t, err, `f:1: unknown statement "nonsense": want use, share or log, and 1 more error`)
	_, err = Parse("f", strings.Repeat("nonsense\n", 1000))
	assert.Len(t, err, maxErrors, "a file that is no configuration has countless ones")
	assert.ErrorContains(t, err, ", and 19 more errors")
}

func FuzzRules(f *testing.F) {
	f.Add("use sdp connect * 192.168.1.0/24:*\nuse tcp server t?cp* [fd00::]/8:22-25\n", "ttcp", "192.168.1.1:80")
	f.Add("log min-level 7 destination file x\nuse both client * *:*", "a", "[::1]:1")
	f.Add("use tcp client x#y *:0-80#80\nlog destination file a#b", "x#y", "[1234::5]:9")
	f.Add("use sdp client * 1234::0/64:*\n# use", "*?", "[1234::5]:9")
	f.Add("share x#y with 1 www-data#\nshare * with 4294967295\n", "x", "[::1]:1")
	f.Fuzz(func(t *testing.T, text, program, address string) {
		defer watchdog.Start()()
		s, err := Parse("f", text)
		if err != nil {
			require.NotEmpty(t, err.(Errors))
			return
		}
		// What a rule is printed as has the same meaning.
		var printed strings.Builder
		lines := make(map[int]string)
		for i := range s.Rules {
			lines[s.Rules[i].Line] = s.Rules[i].String()
		}
		for i := range s.Shares {
			lines[s.Shares[i].Line] = s.Shares[i].String()
		}
		for line := range strings.Count(text, "\n") + 1 {
			printed.WriteString(lines[line+1] + "\n")
		}
		again, err := Parse("f", printed.String())
		require.NoError(t, err, printed.String())
		require.Equal(t, s.Rules, again.Rules)
		require.Equal(t, s.Shares, again.Shares)
		a, err := netip.ParseAddrPort(address)
		if err != nil || a.Port() == 0 {
			return
		}
		own := s.For(program)
		for _, role := range []Role{Server, Client} {
			r, known := own.Decide(role, a.Addr(), a.Port())
			require.True(t, known)
			// If the result does not depend on the address, it is the same for this one.
			for _, less := range []netip.AddrPort{netip.AddrPortFrom(netip.Addr{}, a.Port()), netip.AddrPortFrom(a.Addr(), 0), {}} {
				if early, known := own.Decide(role, less.Addr(), less.Port()); known {
					require.Equal(t, r, early)
				}
			}
			// A rule that another one covers decides nothing.
			for i := range s.Rules {
				if r != nil && s.Rules[i] == *r {
					require.Nil(t, s.Shadow(i), "line %d decides", r.Line)
				}
			}
		}
	})
}
