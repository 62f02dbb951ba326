package sdp

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/dump"
	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/internal/policy"
)

// dumpFile is a dump in memory.
type dumpFile struct {
	mu sync.Mutex
	b  []byte
}

func (f *dumpFile) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.b = append(f.b, b...)
	return len(b), nil
}

func (f *dumpFile) bytes() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Clone(f.b)
}

// startDump dumps the connections with text in their description.
func startDump(t *testing.T, f io.Writer, text string) *dump.Dump {
	t.Helper()
	var d *dump.Dump
	require.Eventually(t, func() bool { // that of an earlier test may be about to end
		var err error
		d, err = observe.StartDump(f, dump.Options{Conn: text, Size: 1 << 30})
		return err == nil
	}, soon, time.Millisecond)
	t.Cleanup(func() { d.Stop() })
	return d
}

// fromEnd tells the connections that one end's address selects from those of the other end.
func fromEnd(c net.Conn) string { return c.LocalAddr().String() + " to " }

// streams puts the streams of a file together, as Wireshark does. It has one connection. The file
// must have a segment for every byte, and may have some twice.
func streams(t *testing.T, b []byte) (sent, received []byte, flags [2]byte) {
	t.Helper()
	var data [2][]byte
	var first [2]uint32
	var begun [2]bool
	for len(b) > 0 {
		kind, n := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		if kind == 6 { // a packet
			length := binary.LittleEndian.Uint32(b[20:])
			tcp := b[28 : 28+length][20:]
			direction := 0
			if out := bytes.Contains(b[28+length:n], []byte{2, 0, 4, 0, 1, 0, 0, 0}); out { // epb_flags: inbound
				direction = 1
			}
			seq := binary.BigEndian.Uint32(tcp[4:])
			payload := tcp[tcp[12]>>4*4:]
			flags[direction] |= tcp[13]
			if tcp[13]&2 != 0 { // SYN
				seq++
			}
			if !begun[direction] {
				begun[direction], first[direction] = true, seq
			}
			at := int(seq - first[direction])
			require.LessOrEqual(t, at, len(data[direction]), "there is a gap")
			data[direction] = append(data[direction][:at], payload...)
		}
		b = b[n:]
	}
	return data[0], data[1], flags
}

// TestDumpHasTheStreams has every method that sends or receives, with Writes of all sizes from
// several goroutines.
func TestDumpHasTheStreams(t *testing.T) {
	for name, config := range map[string]*Config{
		"copied":    {ZCopyThreshold: -1},
		"zero copy": {ZCopyThreshold: 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			writes := 200
			if testing.Short() { // all of it fits in the queue, however slow the dump is
				writes = 40
			}
			client, server := statusPair(t, config)
			var f dumpFile
			d := startDump(t, &f, fromEnd(client))
			var there, back bytes.Buffer
			for range 50 { // before the peer reads
				_, err := client.Write([]byte("small"))
				require.NoError(t, err)
			}
			var all sync.WaitGroup
			all.Go(func() {
				_, err := io.Copy(&there, struct{ io.Reader }{server})
				assert.NoError(t, err)
			})
			var writers sync.WaitGroup
			for i := range 3 {
				writers.Go(func() {
					random := rand.New(rand.NewPCG(uint64(i), 0))
					for range writes {
						b := bytes.Repeat([]byte{byte(random.Uint32())}, 1+random.IntN(200))
						if random.IntN(20) == 0 {
							b = bytes.Repeat(b, 2000)
						}
						_, err := client.Write(b)
						assert.NoError(t, err)
					}
				})
			}
			writers.Wait()
			_, err := client.WriteBuffers(&net.Buffers{[]byte("one"), []byte("two"), make([]byte, 200_000)})
			require.NoError(t, err)
			_, err = client.ReadFrom(strings.NewReader(strings.Repeat("from", 1000)))
			require.NoError(t, err)
			require.NoError(t, client.CloseWrite())
			all.Wait()

			all.Go(func() {
				for i := range 300 {
					_, err := server.Write(bytes.Repeat([]byte{byte(i)}, 1000))
					assert.NoError(t, err)
				}
				assert.NoError(t, server.CloseWrite())
			})
			_, err = io.CopyN(&back, client, 10_000)
			require.NoError(t, err)
			n, err := client.WriteTo(&fussy{&back})
			require.Error(t, err)
			require.Positive(t, n)
			_, err = client.WriteTo(&back)
			require.NoError(t, err)
			all.Wait()
			require.Equal(t, 300_000, back.Len())
			require.NoError(t, client.Close())
			require.NoError(t, d.Stop())
			sent, received, flags := streams(t, f.bytes())
			require.True(t, bytes.Equal(there.Bytes(), sent), "%d bytes sent, %d in the file", there.Len(), len(sent))
			require.True(t, bytes.Equal(back.Bytes(), received), "%d bytes received, %d in the file", back.Len(), len(received))
			require.EqualValues(t, 1, flags[0]&1, "no FIN of this end")
			require.EqualValues(t, 1, flags[1]&1, "no FIN of the peer")
			require.NoError(t, WaitClosed(t.Context()))
			require.Nil(t, client.carrier.Dumped().Load(), "a closed connection keeps its stream")
		})
	}
}

// fussy takes half of what it is given.
type fussy struct{ w io.Writer }

func (f *fussy) Write(b []byte) (int, error) { return f.w.Write(b[:len(b)/2]) }

// TestDumpOfAFailedWrite does not have bytes that were not sent.
func TestDumpOfAFailedWrite(t *testing.T) {
	client, server := statusPair(t, &Config{ZCopyThreshold: -1, ReadBuffer: 64 << 10})
	var f dumpFile
	d := startDump(t, &f, fromEnd(client))
	whole := make([]byte, 9<<20)
	for i := range whole {
		whole[i] = byte(i >> 8)
	}
	require.NoError(t, client.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := client.Write(whole)
	require.Error(t, err)
	require.Less(t, n, len(whole))
	_, err = client.Write([]byte("too late"))
	require.Error(t, err)
	require.NoError(t, client.SetWriteDeadline(time.Time{}))
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(server)
		got <- b
	}()
	_, err = client.Write([]byte("the rest"))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.NoError(t, d.Stop())
	all := <-got
	require.Len(t, all, n+len("the rest"))
	// The Write is more than the queue takes. What counts is where the rest stands.
	text := f.bytes()
	at := bytes.Index(text, []byte("the rest"))
	require.Positive(t, at)
	require.NotContains(t, string(text), "too late")
	require.Contains(t, string(text), fmt.Sprintf("its last %d bytes were not sent", len(whole)-n))
	firstSeq := binary.BigEndian.Uint32(text[bytes.Index(text, []byte{0x45, 0, 0, 44})+24:]) // the SYN
	seq := binary.BigEndian.Uint32(text[at-16:])
	require.Equal(t, firstSeq+1+uint32(n), seq)
}

// TestDumpOfHTTP has tshark dissect requests and answers.
func TestDumpOfHTTP(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("missing: tshark")
	}
	ln, err := engineListen()
	require.NoError(t, err)
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s: %d bytes", r.URL.Path, len(body))
	})}
	go server.Serve(ln)
	defer server.Close()
	var f dumpFile
	d := startDump(t, &f, ln.Addr().String()+" over ") // the client's end
	transport := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return (&Dialer{Config: overEngine(nil)}).DialContext(ctx, "sdp", address)
	}}
	client := http.Client{Transport: transport}
	for i, size := range []int{0, 10, 300_000} {
		answer, err := client.Post(fmt.Sprintf("http://%s/path/%d", ln.Addr(), i), "text/plain", bytes.NewReader(make([]byte, size)))
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
	}
	transport.CloseIdleConnections()
	require.NoError(t, d.Stop())

	port := ln.Addr().(*net.TCPAddr).Port
	dissect := func(args ...string) string {
		cmd := exec.Command(tshark, append([]string{
			"-r", "-", "-d", fmt.Sprintf("tcp.port==%d,http", port),
			"-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE",
		}, args...)...)
		cmd.Stdin = bytes.NewReader(f.bytes())
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		require.NoError(t, err, "%s", errs.String())
		return string(out)
	}
	text := dissect("-Y", "http", "-T", "fields", "-E", "separator= ", "-e", "http.request.uri", "-e", "http.response.code", "-e", "http.file_data")
	require.Equal(t, 3, strings.Count(text, " 200 "), "%s", text)
	for i := range 3 {
		require.Contains(t, text, fmt.Sprintf("/path/%d", i))
	}
	require.Empty(t, dissect("-Y", "tcp.analysis.flags || tcp.checksum.status == 0 || ip.checksum.status == 0 || _ws.malformed"))
	require.Equal(t, 2, strings.Count(dissect("-Y", "tcp.flags.syn == 1"), "\n"))
	require.Positive(t, strings.Count(dissect("-Y", "tcp.flags.fin == 1"), "\n"))
	require.Contains(t, dissect("-Y", "frame.comment", "-T", "fields", "-e", "frame.comment"), " over ")
}

// TestDumpsExcludeEachOther, and are refused where they must be.
func TestDumpsExcludeEachOther(t *testing.T) {
	d := startDump(t, io.Discard, "")
	answer := func() string {
		var text bytes.Buffer
		gone := make(chan struct{})
		close(gone)
		observe.ServeDump("size=64K", &text, gone)
		return text.String()
	}
	require.Equal(t, "no dump: another dump of this process is in progress\n", answer())
	require.NoError(t, d.Stop())
	require.True(t, strings.HasPrefix(answer(), "ok\n\n\r\r\n"), "%q", answer())
	t.Setenv(policy.DumpVariable, "off")
	require.Equal(t, "no dump: disabled by SDP_DUMP=off in the program\n", answer())
	t.Setenv(policy.DumpVariable, "")
	was := policy.Privileged
	defer func() { policy.Privileged = was }()
	policy.Privileged = func() bool { return true }
	require.Equal(t, "no dump: program is privileged (set-user-ID or file capabilities)\n", answer())
	var text bytes.Buffer
	observe.ServeDump("size=1", &text, nil)
	require.Contains(t, text.String(), "no dump: size=1: want at least")
}

// TestDumpSelectsConnections by address and number.
func TestDumpSelectsConnections(t *testing.T) {
	one, _ := statusPair(t, nil)
	two, _ := statusPair(t, nil)
	var id uint64
	for _, c := range Connections() {
		if c.Local.String() == one.LocalAddr().String() {
			id = c.ID
		}
	}
	for _, text := range []string{fromEnd(one), fmt.Sprint("#", id)} {
		d := startDump(t, io.Discard, text)
		require.NotNil(t, one.carrier.Dumped().Load(), text)
		require.Nil(t, two.carrier.Dumped().Load(), text)
		require.NoError(t, d.Stop())
		require.Nil(t, one.carrier.Dumped().Load(), "a connection keeps the stream of a dump that has ended")
	}
	d := startDump(t, io.Discard, "no such address")
	three, _ := statusPair(t, nil)
	require.Nil(t, three.carrier.Dumped().Load())
	require.NoError(t, d.Stop())
}

// TestDumpHasWhatRawReadTakes: gRPC reads its connections in the callback of RawConn.Read.
func TestDumpHasWhatRawReadTakes(t *testing.T) {
	client, server := statusPair(t, nil)
	var f dumpFile
	d := startDump(t, &f, fromEnd(server))
	data := random(50_000)
	wrote := make(chan error, 1)
	go func() {
		_, err := client.Write(data)
		if err == nil {
			err = client.CloseWrite()
		}
		wrote <- err
	}()
	raw, err := server.SyscallConn()
	require.NoError(t, err)
	var got []byte
	for ended := false; !ended; {
		b := make([]byte, 7000)
		require.NoError(t, raw.Read(func(fd uintptr) bool {
			n, err := syscall.Read(int(fd), b)
			got = append(got, b[:max(n, 0)]...)
			ended = n == 0 && err == nil
			return err != syscall.EAGAIN
		}))
	}
	require.NoError(t, <-wrote)
	require.NoError(t, d.Stop())
	_, received, flags := streams(t, f.bytes())
	require.True(t, bytes.Equal(data, got))
	require.True(t, bytes.Equal(data, received), "the dump has %d bytes of %d", len(received), len(data))
	require.NotZero(t, flags[1]&1, "FIN")
}
