package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/watchdog"
)

func TestParse(t *testing.T) {
	routes, err := Parse(strings.NewReader(`
# PostgreSQL
tcp://127.0.0.1:5432  sdp://db.example:7000   limit=500 # as many as the server takes
auto://[::]:15001     auto://original         mark=0x5d9 dial-timeout=5s
auto://@inbound       tcp://original
`), "f", Options{DialTimeout: time.Second, Mark: 7})
	require.NoError(t, err)
	require.Equal(t, []Route{
		{Endpoint{TCP, "127.0.0.1:5432"}, Endpoint{SDP, "db.example:7000"}, Options{500, time.Second, 7}, 3},
		{Endpoint{Auto, "[::]:15001"}, Endpoint{Auto, "original"}, Options{0, 5 * time.Second, 0x5d9}, 4},
		{Endpoint{Auto, "@inbound"}, Endpoint{TCP, "original"}, Options{0, time.Second, 7}, 5},
	}, routes)
}

func TestParseNamesEveryLineThatIsWrong(t *testing.T) {
	for line, want := range map[string]string{
		"tcp://:1":                                  "want where to listen and where to dial",
		"udp://:1 tcp://a:1":                        `"udp://:1" is not an endpoint`,
		"tcp://:1 tcp://:1":                         "missing host",
		"tcp://:1 tcp://a":                          "missing port",
		"tcp://:99999 tcp://a:1":                    `invalid port "99999"`,
		"tcp://original tcp://a:1":                  "is valid only as a target",
		"tcp://@ tcp://a:1":                         "names no socket",
		"sdp://@a tcp://a:1":                        "an inherited socket serves tcp:// or auto://",
		"tcp://:1 tcp://@a":                         "missing port",
		"tcp://:1 tcp://a:1 limit":                  "want name=value",
		"tcp://:1 tcp://a:1 limit=-1":               "limit=-1: want a number",
		"tcp://:1 tcp://a:1 dial-timeout=0":         "dial-timeout=0: want a time",
		"tcp://:1 tcp://a:1 mark=0x1ffffffff":       "mark=0x1ffffffff: want a number",
		"tcp://:1 tcp://a:1 colour=red":             `unknown option "colour"`,
		"tcp://:80 tcp://a:1\ntcp://:80 tcp://b:1":  "address already in use by line 3: :80",
		"tcp://:80 tcp://a:1\nauto://:80 tcp://b:1": "address already in use by line 3: :80",
	} {
		_, err := Parse(strings.NewReader("# first\n\n"+line+"\n"), "relays.conf", Options{})
		require.ErrorContains(t, err, want, line)
		number := "relays.conf:3: "
		if strings.Contains(line, "\n") {
			number = "relays.conf:4: "
		}
		require.ErrorContains(t, err, number, line)
	}
	_, err := Parse(strings.NewReader("a\n#\nb\n"), "f", Options{})
	require.ErrorContains(t, err, "f:1: ")
	require.ErrorContains(t, err, "f:3: ")
	_, err = Parse(strings.NewReader("# nothing\n"), "f", Options{})
	require.ErrorContains(t, err, "no routes")
	_, err = Parse(strings.NewReader(strings.Repeat("#\n", maxConfig)), "f", Options{})
	require.ErrorContains(t, err, "longer than")
	_, err = Parse(strings.NewReader(strings.Repeat("#", 1<<17)), "f", Options{})
	require.ErrorContains(t, err, "token too long")
}

func FuzzParse(f *testing.F) {
	f.Add("tcp://127.0.0.1:5432 sdp://db:7000 limit=5 mark=1\n")
	f.Fuzz(func(t *testing.T, text string) {
		defer watchdog.Start()()
		routes, err := Parse(strings.NewReader(text), "f", Options{})
		if err != nil {
			return
		}
		for _, r := range routes {
			again, err := ParseListen(r.Listen.String())
			require.NoError(t, err)
			require.Equal(t, r.Listen, again)
			require.NotZero(t, r.Line)
		}
	})
}
