package debug

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/sdp"
)

// pair returns both ends of a connection over which bytes move until the test's end. config may be nil.
func pair(t *testing.T, config *sdp.Config) (client, server *sdp.Conn) {
	t.Helper()
	l, err := (&sdp.ListenConfig{Config: config}).Listen(t.Context(), "sdp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		s, _ := l.Accept()
		accepted <- s
	}()
	c, err := (&sdp.Dialer{Config: config}).Dial("sdp", l.Addr().String())
	require.NoError(t, err)
	s := <-accepted
	require.NotNil(t, s)
	done := make(chan struct{})
	go func() { io.Copy(io.Discard, s); close(done) }()
	stop := make(chan struct{})
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 1; ; n++ {
			if _, err := c.Write(make([]byte, 5000+1000*(n%20))); err != nil {
				return
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); c.Close(); <-done; s.Close() })
	return c.(*sdp.Conn), s.(*sdp.Conn)
}

func TestMain(m *testing.M) {
	meeting.TestSelf = true // both ends of the connections are in this process
	os.Exit(m.Run())
}

func get(t *testing.T, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
	return w
}

func TestJSON(t *testing.T) {
	client, _ := pair(t, nil)
	w := get(t, "/debug/sdp?json")
	require.Equal(t, "application/json; charset=utf-8", w.Header().Get("Content-Type"))
	var p struct {
		PID         int
		Connections []struct {
			Local, Device, Mode string
			Moves               uint64
		}
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, os.Getpid(), p.PID)
	require.Len(t, p.Connections, 2)
	require.Eventually(t, func() bool {
		require.NoError(t, json.Unmarshal(get(t, "/debug/sdp?json").Body.Bytes(), &p))
		for _, c := range p.Connections {
			if c.Local == client.LocalAddr().String() {
				return c.Device == "iwarp" || c.Device == "shm" && c.Mode == "ring" && c.Moves == 1
			}
		}
		return false
	}, time.Minute, time.Millisecond)
}

// TestPageStandsAlone requires that the page loads nothing from elsewhere, and that a browser
// would refuse to.
func TestPageStandsAlone(t *testing.T) {
	w := get(t, "/debug/sdp")
	require.Equal(t, 200, w.Code)
	policy := w.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	nonce := regexp.MustCompile(`script-src 'nonce-(\w+)'`).FindStringSubmatch(policy)
	require.Len(t, nonce, 2)
	require.Contains(t, w.Body.String(), `<script nonce="`+nonce[1]+`">`)
	require.NotEqual(t, policy, get(t, "/debug/sdp").Header().Get("Content-Security-Policy"))
	require.NotContains(t, w.Body.String(), "NONCE")
	require.NotContains(t, strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", ""), "http")
	require.NotContains(t, w.Body.String(), "innerHTML")
	post := httptest.NewRecorder()
	Handler().ServeHTTP(post, httptest.NewRequest("POST", "/", nil))
	require.Equal(t, http.StatusMethodNotAllowed, post.Code)
}

// TestPageInABrowser looks at the page in Chromium, after it has been open for a minute of
// the browser's time, which passes as fast as the page is refreshed.
// GOSDP_PICTURE names a file for a picture of it.
func TestPageInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("missing: time, because -short is set; the browser's clock runs ahead of the program's")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("missing: chromium")
	}
	client, server := pair(t, nil)
	pair(t, &sdp.Config{Devices: []string{"iwarp"}}) // with the columns of SDP's messages
	idle, err := net.Listen("tcp6", "[::1]:0")
	require.NoError(t, err)
	defer idle.Close()
	for _, devices := range [][]string{{"shm"}, {"tcp"}} { // one that has not moved, and one that never will
		c, err := (&sdp.Dialer{Config: &sdp.Config{Devices: devices}}).Dial("tcp", idle.Addr().String())
		require.NoError(t, err)
		defer c.Close()
	}
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			Handler().ServeHTTP(w, r)
			return
		}
		page := httptest.NewRecorder()
		Handler().ServeHTTP(page, r)
		maps.Copy(w.Header(), page.Header())
		// The title says how much of the table is out of sight.
		io.WriteString(w, strings.Replace(page.Body.String(), "</script>", `setInterval(() => {
			const e = document.querySelector(".scroll");
			document.title = "hidden: " + (e.scrollWidth - e.clientWidth);
		}, 100);</script>`, 1))
	}))
	defer program.Close()
	browse := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, chromium, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--user-data-dir=" + t.TempDir(), "--virtual-time-budget=60000", "--window-size=1200,560"}, append(args, program.URL+"/")...)...)
		cmd.WaitDelay = 10 * time.Second
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	if picture := os.Getenv("GOSDP_PICTURE"); picture != "" {
		browse("--screenshot=" + picture)
	}
	dom := browse("--dump-dom")
	require.Contains(t, dom, "<title>hidden: 0</title>")
	dom, _, _ = strings.Cut(dom, "<script") // which contains the page's texts, too
	for _, want := range []string{
		`<span id="state" role="status" class="">refreshed every second</span>`,
		"<td>" + client.LocalAddr().String() + "</td>",
		"<td>" + server.LocalAddr().String() + "</td>",
		"<td>" + client.Device() + "</td>",
		`<td class="note" colspan="[0-9]+">too little traffic</td>`,
		`<b id="plain">1</b><span id="why">off 1</span>`,
		`<b id="outrate">[0-9.]+ [kM]?B/s</b>`,
		`<td class="n">[1-9][0-9.]* [kM]B</td>`, // bytes sent
		// The largest rate is at the top of the graph.
		`id="outgraph".*<polyline class="out" points="[^"]*,1\.0[ "].*id="ingraph"`,
	} {
		_, body, _ := strings.Cut(strings.ReplaceAll(dom, "\n", ""), "<body>")
		require.True(t, regexp.MustCompile(want).MatchString(body), "%s does not match\n%s", want, body)
	}
}
