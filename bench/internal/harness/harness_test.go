package harness

import (
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary run as a measured process.
func TestMain(m *testing.M) {
	if ChildMain() {
		return
	}
	// By default the race detector sleeps for a second when a process exits.
	os.Setenv("GORACE", "atexit_sleep_ms=10 "+os.Getenv("GORACE"))
	os.Exit(m.Run())
}

// small returns c with fewer connections and smaller messages.
func small(c Case) Case {
	c.Conns = min(c.Conns, 3)
	c.Size = min(c.Size, 100_000)
	return c
}

func TestEveryKindRuns(t *testing.T) {
	tcp, err := Find(Baseline)
	require.NoError(t, err)
	seen := map[Kind]bool{}
	for _, c := range Quick {
		if !seen[c.Kind] {
			seen[c.Kind] = true
			t.Run(c.Name(), func(t *testing.T) { runTwice(t, tcp, small(c)) })
		}
	}
}

func TestEveryContenderRuns(t *testing.T) {
	for _, contender := range Contenders {
		t.Run(contender.Name, func(t *testing.T) {
			if why := contender.Absent(); why != nil {
				t.Skip("missing: ", why)
			}
			for _, c := range []Case{{Kind: Duplex, Size: 100_000, Conns: 1}, {Kind: Setup, Size: 1, Conns: 1}, {Kind: Life, Size: 64, Conns: 1, Exchanges: 3}} {
				if contender.Measures(c.Kind) {
					runTwice(t, contender, c)
				}
			}
		})
	}
}

func runTwice(t *testing.T, contender Contender, c Case) {
	pair, err := StartPair(contender, c)
	require.NoError(t, err)
	defer func() { require.NoError(t, pair.Close()) }()
	for _, n := range []int{1, 5} {
		turn, err := pair.Run(n)
		require.NoError(t, err)
		require.Equal(t, n, turn.Messages)
		require.Positive(t, turn.Took)
		require.True(t, turn.CPU > 0 || c.Kind.isIdle())
		require.NotEmpty(t, c.Metrics(turn))
	}
}

// TestLinksMoveBeforeATurn: cases about bytes measure shared memory, and conns-home measures what is left of it.
func TestLinksMoveBeforeATurn(t *testing.T) {
	c, err := Find("sdp-shm")
	require.NoError(t, err)
	if why := c.Absent(); why != nil || runtime.GOOS != "linux" {
		t.Skip("missing: shared memory")
	}
	runTwice(t, c, Case{Kind: RTT, Size: 64, Conns: 1})
	runTwice(t, c, Case{Kind: ConnsHome, Conns: 2})
}

// TestLimitCarriesStreams: its rings are smaller than what is under way.
func TestLimitCarriesStreams(t *testing.T) {
	c, err := Find(Limit)
	require.NoError(t, err)
	if why := c.Absent(); why != nil {
		t.Skip("missing: ", why)
	}
	for _, load := range []Case{{Kind: RTT, Size: 100_000, Conns: 1}, {Kind: Stream, Size: 1 << 20, Conns: 1}, {Kind: Duplex, Size: 1000, Conns: 1}} {
		runTwice(t, c, load)
	}
}

func TestContenderThatCannotConnectIsAnError(t *testing.T) {
	_, err := StartPair(Contender{Name: "pigeons"}, small(Quick[0]))
	require.ErrorContains(t, err, "pigeons")
}

func TestProcessThatDoesNotAnswerIsKilled(t *testing.T) {
	tcp, err := Find(Baseline)
	require.NoError(t, err)
	pair, err := StartPair(tcp, Case{Kind: RTTIdle, Size: 64, Conns: 1})
	require.NoError(t, err)
	var result Result
	err = pair.client.call(50*time.Millisecond, "Run", int(time.Minute/pauses[RTTIdle]), &result)
	require.ErrorIs(t, err, errStalled)
	require.Error(t, pair.Close(), "the process was killed")
}

func TestEveryKindIsInQuickAndInFull(t *testing.T) {
	for _, all := range [][]Case{Quick, Full} {
		names := map[string]bool{}
		seen := map[Kind]bool{}
		for _, c := range all {
			require.NotContains(t, names, c.Name())
			names[c.Name()] = true
			seen[c.Kind] = true
		}
		require.Len(t, seen, len(kinds))
	}
	for _, c := range Quick {
		require.Contains(t, Full, c)
	}
}

func TestRunnerAimsAtTheLengthOfATurn(t *testing.T) {
	r := &Runner{turn: 100 * time.Millisecond}
	took := func(took time.Duration) Turn { return Turn{Messages: 1000, Result: Result{Took: took}} }
	for _, c := range []struct {
		took     time.Duration
		messages int
	}{
		{100 * time.Millisecond, 1000},
		{80 * time.Millisecond, 1250},
		{time.Second, 500}, // and not 100
		{time.Millisecond, 100_000},
	} {
		r.aim(took(c.took), 0.5)
		require.Equal(t, c.messages, r.messages, c.took)
	}
}

func TestTooManyFilesAreDetectedEarly(t *testing.T) {
	if openFiles() == 0 {
		t.Skip("missing: a system that reports the number of open files")
	}
	for range probeConns {
		file, err := os.Open(os.DevNull)
		require.NoError(t, err)
		defer file.Close()
	}
	before := openFiles() - probeConns
	require.NoError(t, enoughFiles(before, 1))
	require.ErrorContains(t, enoughFiles(before, 1<<40), "the limit is")
	require.NoError(t, enoughFiles(openFiles(), 1<<40), "no file was opened since")
}

func TestServerThatDoesNotAnswerTheGreetingIsAnError(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"closes":    func(conn net.Conn) { conn.Close() },
		"is silent": func(net.Conn) {},
		"speaks another protocol": func(conn net.Conn) {
			conn.Write([]byte("HTTP/1.1 400 Bad Request"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			near, far := net.Pipe()
			defer far.Close()
			go func() {
				io.ReadFull(far, make([]byte, headerSize))
				serve(far)
			}()
			_, err := dialLink(ctx, target{Contender: Contender{
				Dial: func(context.Context, string, Case) (net.Conn, error) { return near, nil },
			}})
			require.Error(t, err)
		})
	}
}
