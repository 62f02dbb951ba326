package dump

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gosdp/gosdp/test/watchdog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// sink is a file in memory. Its Writes wait while it is held.
type sink struct {
	mu   sync.Mutex
	held sync.Mutex
	b    []byte
	err  error
}

func (s *sink) Write(b []byte) (int, error) {
	s.held.Lock()
	defer s.held.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b = append(s.b, b...)
	return len(b), s.err
}

// got is a packet as a reader sees it.
type got struct {
	out      bool
	from, to string
	flags    byte
	seq, ack uint32
	data     []byte
	comment  string
	lost     uint64
}

// read checks a file and returns its packets, and the comment at its end.
func read(t *testing.T, b []byte) (packets []got, end string) {
	t.Helper()
	for first := true; len(b) > 0; first = false {
		kind, n := order.Uint32(b), int(order.Uint32(b[4:]))
		require.Zero(t, n%4)
		require.LessOrEqual(t, n, len(b))
		require.EqualValues(t, n, order.Uint32(b[n-4:]), "the lengths of a block differ")
		body := b[8 : n-4]
		switch kind {
		case sectionBlock:
			require.True(t, first)
		case interfaceBlock:
			require.EqualValues(t, linkRaw, order.Uint16(body))
		case statisticsBlock:
			end = string(options(t, body[12:])[optionComment])
			require.Equal(t, end, EndComment(b))
		case packetBlock:
			length := int(order.Uint32(body[12:]))
			ns := int64(order.Uint32(body[4:]))<<32 | int64(order.Uint32(body[8:]))
			require.WithinDuration(t, time.Now(), time.Unix(0, ns), time.Minute)
			all := options(t, body[20+(length+3)&^3:])
			p := parse(t, body[20:20+length])
			p.out = order.Uint32(all[optionFlags]) == outbound
			p.comment = string(all[optionComment])
			if lost := all[optionDropped]; lost != nil {
				p.lost = order.Uint64(lost)
			}
			packets = append(packets, p)
		default:
			require.Fail(t, "unknown block", "%x", kind)
		}
		b = b[n:]
	}
	return packets, end
}

func options(t *testing.T, b []byte) map[uint16][]byte {
	t.Helper()
	all := make(map[uint16][]byte)
	for {
		code, n := order.Uint16(b), int(order.Uint16(b[2:]))
		if code == 0 {
			require.Len(t, b, 4)
			return all
		}
		all[code] = b[4 : 4+n]
		b = b[4+(n+3)&^3:]
	}
}

// parse checks the checksums of a packet.
func parse(t *testing.T, b []byte) (p got) {
	t.Helper()
	var from, to netip.Addr
	pseudo := uint64(protoTCP)
	if b[0]>>4 == 4 {
		require.EqualValues(t, 0xffff, fold(sum(0, b[:ipv4Len])), "the checksum of the IP header")
		require.Equal(t, len(b), int(b[2])<<8|int(b[3]))
		from, to = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		pseudo = sum(pseudo, b[12:20])
		b = b[ipv4Len:]
	} else {
		require.Equal(t, len(b)-ipv6Len, int(b[4])<<8|int(b[5]))
		from, to = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		pseudo = sum(pseudo, b[8:40])
		b = b[ipv6Len:]
	}
	require.EqualValues(t, 0xffff, fold(sum(pseudo+uint64(len(b)), b)), "the checksum of TCP")
	word := func(i int) uint32 { return uint32(b[i])<<24 | uint32(b[i+1])<<16 | uint32(b[i+2])<<8 | uint32(b[i+3]) }
	p.from = netip.AddrPortFrom(from, uint16(word(0)>>16)).String()
	p.to = netip.AddrPortFrom(to, uint16(word(0))).String()
	p.seq, p.ack, p.flags = word(4), word(8), b[13]
	p.data = b[b[12]>>4*4:]
	return p
}

func conn(id uint64, local, remote string) Conn {
	return Conn{ID: id, Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote), Text: "test", Dialled: true, Begins: true}
}

func start(t *testing.T, s *sink, o Options) *Dump {
	t.Helper()
	if o.Size == 0 {
		o.Size = DefaultSize
	}
	d := Start(s, o, "a test", func() {})
	t.Cleanup(func() { d.Stop() })
	return d
}

// TestStream has a whole connection, over both versions of IP.
func TestStream(t *testing.T) {
	for _, addresses := range [][2]string{{"10.0.0.1:1000", "10.0.0.2:80"}, {"[fe80::1%eth0]:1000", "[2001:db8::2]:80"}, {"[::ffff:10.0.0.1]:1", "10.0.0.2:2"}} {
		var f sink
		d := start(t, &f, Options{})
		s := d.Stream(conn(7, addresses[0], addresses[1]))
		s.Sent([]byte("ask"))
		s.Received([]byte("answer it"))
		s.NotReceived(3)
		s.Received([]byte(" it"))
		long := bytes.Repeat([]byte("x"), maxData+1)
		s.Sent(long)
		s.NotSent(1)
		s.EndSent()
		s.EndReceived()
		s.Received([]byte("after the end"))
		require.NoError(t, d.Stop())
		p, end := read(t, f.b)
		require.Contains(t, end, "it was stopped. 0 packets were left out")
		require.Len(t, p, 10)
		out, in := p[0].seq, p[1].seq
		for i, want := range []got{
			{out: true, flags: syn, seq: out, comment: "test"},
			{flags: syn | ack, seq: in, ack: out + 1},
			{out: true, flags: ack, seq: out + 1, ack: in + 1},
			{out: true, flags: psh | ack, seq: out + 1, ack: in + 1, data: []byte("ask")},
			{flags: psh | ack, seq: in + 1, ack: out + 4, data: []byte("answer it")},
			{flags: psh | ack, seq: in + 7, ack: out + 4, data: []byte(" it"), comment: "The last 3 bytes before this were returned, and are read again"},
			{out: true, flags: ack, seq: out + 4, ack: in + 10, data: long[:maxData]},
			{out: true, flags: psh | ack, seq: out + 4 + maxData, ack: in + 10, data: []byte("x")},
			{out: true, flags: fin | ack, seq: out + 4 + maxData, ack: in + 10, comment: "The Write before this failed: its last 1 bytes were not sent"},
			{flags: fin | ack, seq: in + 10, ack: out + 5 + maxData},
		} {
			want.from, want.to = p[1].to, p[1].from
			if !want.out {
				want.from, want.to = want.to, want.from
			}
			if want.data == nil {
				want.data = []byte{}
			}
			require.Equal(t, want, p[i], "packet %d", i)
		}
	}
}

// TestAddresses: zones are left out, and a Unix socket gets ports on this host.
func TestAddresses(t *testing.T) {
	a, b := pair(netip.MustParseAddrPort("[fe80::1%eth0]:1"), netip.MustParseAddrPort("[::ffff:10.0.0.2]:2"), 1)
	require.Equal(t, "[fe80::1]:1", a.String())
	require.Equal(t, "[::ffff:10.0.0.2]:2", b.String())
	a, b = pair(netip.AddrPort{}, netip.AddrPort{}, 7)
	require.Equal(t, "127.0.0.1:1031", a.String())
	require.Equal(t, "127.0.0.1:32775", b.String())
}

// TestSizeIsBounded to the byte, whatever is sent.
func TestSizeIsBounded(t *testing.T) {
	for _, size := range []int64{leastSize, 100_000, 1 << 20} {
		var f sink
		d := start(t, &f, Options{Size: size})
		s := d.Stream(conn(1, "10.0.0.1:1", "10.0.0.2:2"))
		require.Eventually(t, func() bool {
			s.Sent(make([]byte, 1000))
			select {
			case <-d.Ended():
				return true
			default:
				return false
			}
		}, patience, 100*time.Microsecond)
		require.NoError(t, d.Stop())
		require.LessOrEqual(t, int64(len(f.b)), size)
		require.Greater(t, int64(len(f.b)), size-trailer-2000)
		_, end := read(t, f.b)
		require.Contains(t, end, "the size limit was reached")
	}
}

func TestCountAndTimeEndADump(t *testing.T) {
	var f sink
	d := start(t, &f, Options{Count: 4})
	s := d.Stream(conn(1, "10.0.0.1:1", "10.0.0.2:2"))
	for range 10 {
		s.Sent([]byte("x"))
	}
	<-d.Ended()
	p, end := read(t, f.b)
	require.Len(t, p, 4)
	require.Contains(t, end, "limit of packets")

	f = sink{}
	d = start(t, &f, Options{For: time.Millisecond})
	<-d.Ended()
	_, end = read(t, f.b)
	require.Contains(t, end, "time limit")
	s = d.Stream(conn(2, "10.0.0.1:1", "10.0.0.2:2"))
	s.Sent([]byte("x"))
	require.Empty(t, d.queue, "a dump that has ended keeps what it gets")
}

// TestSlowFileLosesPackets has a file that takes nothing for a while. The connections do not wait,
// memory is bounded, and the file says what is missing.
func TestSlowFileLosesPackets(t *testing.T) {
	var f sink
	f.held.Lock()
	d := start(t, &f, Options{Size: 1 << 30})
	s := d.Stream(conn(1, "10.0.0.1:1", "10.0.0.2:2"))
	const block = 16 << 10
	begin := time.Now()
	for range 4 * maxQueued / block {
		s.Sent(make([]byte, block))
	}
	require.Less(t, time.Since(begin), patience, "each Write waits")
	d.mu.Lock()
	lost := d.all
	require.LessOrEqual(t, d.queued, maxQueued)
	d.mu.Unlock()
	require.Positive(t, lost)
	f.held.Unlock()
	require.Eventually(t, func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.queued == 0 }, patience, time.Millisecond)
	s.Sent([]byte("next"))
	require.NoError(t, d.Stop())
	p, end := read(t, f.b)
	last := p[len(p)-1]
	require.Equal(t, "next", string(last.data))
	require.Equal(t, lost, last.lost)
	require.Equal(t, p[2].seq+4*maxQueued, last.seq, "what was lost leaves no gap")
	require.Contains(t, end, fmt.Sprintf("%d packets were left out", lost))
}

// slowSink is a file that takes a while for each Write.
type slowSink struct{ sink }

func (s *slowSink) Write(b []byte) (int, error) {
	time.Sleep(50 * time.Millisecond)
	return s.sink.Write(b)
}

// TestLongWriteWaitsOnce has a file that is slow, but never so slow that a packet would have to wait for
// long. A long Write waits no longer for it than a short one.
func TestLongWriteWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f slowSink
		d := Start(&f, Options{Size: 1 << 30}, "a test", func() {})
		s := d.Stream(conn(1, "10.0.0.1:1", "10.0.0.2:2"))
		begin := time.Now()
		s.Sent(make([]byte, 2*maxQueued))
		require.Equal(t, maxWait, time.Since(begin))
		require.NoError(t, d.Stop())
		_, end := read(t, f.b)
		require.NotContains(t, end, ". 0 packets were left out")
	})
}

// TestLongWriteIsComplete has a Write that is longer than the queue.
func TestLongWriteIsComplete(t *testing.T) {
	var f sink
	d := start(t, &f, Options{Size: 1 << 30})
	d.maxWait = patience
	s := d.Stream(conn(1, "10.0.0.1:1", "10.0.0.2:2"))
	b := make([]byte, 3*maxQueued/2)
	for i := range b {
		b[i] = byte(i >> 12)
	}
	s.Sent(b)
	require.NoError(t, d.Stop())
	p, end := read(t, f.b)
	require.Contains(t, end, ". 0 packets were left out")
	var all []byte
	for _, one := range p {
		all = append(all, one.data...)
	}
	require.True(t, bytes.Equal(b, all))
}

func TestFailedFileEndsADump(t *testing.T) {
	f := sink{err: errors.New("no space")}
	d := start(t, &f, Options{})
	<-d.Ended()
	require.EqualError(t, d.Stop(), "no space")
}

func TestOptions(t *testing.T) {
	o, err := ParseOptions("conn=:80,size=2M,count=3,for=4s")
	require.NoError(t, err)
	require.Equal(t, Options{":80", 2 << 20, 3, 4 * time.Second}, o)
	again, err := ParseOptions(o.String())
	require.NoError(t, err)
	require.Equal(t, o, again)
	o, err = ParseOptions("size=1073741824G")
	require.NoError(t, err)
	require.EqualValues(t, maxSize, o.Size)
	o, err = ParseOptions("")
	require.NoError(t, err)
	require.Equal(t, Options{Size: DefaultSize}, o)
	for text, want := range map[string]string{
		"size=0":                      "size=0: want at least 4096 bytes",
		"size=-1G":                    "want at least",
		"size=999999999999999999999G": "not a number of bytes",
		"size=-9999999999G":           "not a number of bytes",
		"size=2147483648G":            "want at most 1152921504606846976 bytes",
		"size=9223372036854775807":    "want at most",
		"size=1073741825G":            "want at most",
		"size=x":                      "not a number of bytes, such as 512M",
		"count=0":                     "must be positive",
		"for=-1s":                     "must be positive",
		"for=1":                       "for=1: not a time, such as 10s or 50us",
		"snap=1":                      "unknown option",
		"size":                        "is not a dump option",
	} {
		_, err := ParseOptions(text)
		require.ErrorContains(t, err, want, "%s", text)
	}
}

// TestCreate refuses whatever exists at the path.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(Path(filepath.Join(dir, "a-%p"), 7))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	info, err := os.Stat(filepath.Join(dir, "a-7"))
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		require.EqualValues(t, 0o600, info.Mode().Perm())
	}
	_, err = Create(f.Name())
	require.ErrorIs(t, err, os.ErrExist)
	victim := filepath.Join(dir, "victim")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(victim, link); err != nil {
		t.Skip("missing: the right to make links: ", err)
	}
	_, err = Create(link)
	require.ErrorIs(t, err, os.ErrExist)
	require.NoFileExists(t, victim)
}

func FuzzEndComment(f *testing.F) {
	f.Add(appendEnd(nil, 1, 2, 3, "why"))
	f.Add([]byte(strings.Repeat("\x05\x00\x00\x00", 20)))
	f.Fuzz(func(t *testing.T, b []byte) {
		defer watchdog.Start()()
		require.LessOrEqual(t, len(EndComment(b)), len(b))
	})
}
