package iwarp

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/gosdp/gosdp/test/watchdog"
)

// script is a transport whose incoming stream is fixed.
type script struct {
	in   []byte
	step func() int // how many bytes the next read brings, at least 1
	out  []byte
}

func (t *script) read(s sink, _ bool) (int, error) {
	first, second := s.space()
	if len(t.in) == 0 {
		s.got(0)
		s.parking()
		return 0, io.EOF
	}
	piece := t.in[:min(t.step(), len(t.in))]
	n := copy(first, piece)
	n += copy(second, piece[n:])
	t.in = t.in[n:]
	s.got(n)
	return n, nil
}

func (t *script) write(pieces [][]byte) (n int, err error) {
	for _, p := range pieces {
		t.out = append(t.out, p...)
		n += len(p)
	}
	return n, nil
}

func (t *script) waitWrite(step func() bool) error {
	for !step() {
	}
	return nil
}
func (t *script) wakeWrite()                {}
func (t *script) setBusyPoll(time.Duration) {}

func (t *script) wakeRead()          {}
func (t *script) unsent() (_, _ int) { return 0, 0 }
func (t *script) settled() bool      { return true }
func (t *script) settle() error      { return nil }
func (t *script) closeWrite()        {}
func (t *script) close() error       { return nil }
func (t *script) abort() error       { return nil }

// The STags of a scripted victim, the same in every run.
const (
	scriptBoth = 0x1000 + iota
	scriptReads
	scriptWrites
)

// scripted returns a victim with two outstanding Reads, whose peer sends a fixed stream.
func scripted(t testing.TB, crc bool, in []byte, step func() int) (*victim, *script) {
	s := &script{in: in, step: step}
	q := &QueuePair{p: params{Params: mpa.Params{CRC: crc, IRD: 4, ORD: 2}, maxULPDU: mpa.SoftwareULPDU}, t: s}

	q.rx.q = q

	v := newVictim(t, q)
	v.name()
	v.read(t)
	return v, s
}

// step returns a function that always returns n.
func step(n int) func() int { return func() int { return n } }

// part is a ULPDU of a session and what the victim delivers for it.
type part struct {
	ulpdu   []byte
	message string // of the Send that it ends
	done    uint64 // the Read that it ends
	open    bool   // a Send, or an RDMA Write and the message about it, is incomplete after it
}

// session has each kind of segment, one of them long enough to be placed while it arrives.
func session() []part {
	return []part{
		{ulpdu: tagged(0, true, 1, 0, nil)},
		{ulpdu: untagged(3, true, 0, 0, 1, 0, []byte("one")), message: "one"},
		{ulpdu: tagged(0, true, scriptBoth, 5, pattern(2, 99)), open: true},
		{ulpdu: tagged(2, false, 1, 0, pattern(3, local1Len-9001)), open: true},
		{ulpdu: untagged(3, false, 0, 0, 2, 0, []byte("two ")), open: true},
		{ulpdu: tagged(0, true, scriptWrites, writeLen-1, pattern(4, 1)), open: true},
		{ulpdu: untagged(3, false, 0, 0, 2, 4, nil), open: true},
		{ulpdu: untagged(3, true, 0, 0, 2, 4, []byte("halves")), message: "two halves"},
		{ulpdu: tagged(2, true, 1, local1Len-9001, pattern(5, 9001)), done: 1},
		{ulpdu: untagged(1, true, 0, 1, 1, 0, readRequestOf(0xAB, 7, 100, scriptReads, 8))},
		{ulpdu: untagged(1, true, 0, 1, 2, 0, readRequestOf(0, 0, 0, 0, 0))},
		{ulpdu: untagged(5, true, 0, 0, 3, 0, []byte("solicited")), message: "solicited"},
		{ulpdu: tagged(2, true, 2, 0, pattern(6, local2Len)), done: 2},
		{ulpdu: untagged(4, true, scriptReads, 0, 4, 0, []byte("invalidates")), message: "invalidates"},
		{ulpdu: untagged(6, true, scriptWrites, 0, 5, 0, nil), message: ""},
	}
}

// stream returns the session as bytes on the wire, and where each part of it ends.
func stream(crc bool, parts []part) (b []byte, ends []int) {
	for _, p := range parts {
		b = append(b, fpdu(crc, p.ulpdu)...)
		ends = append(ends, len(b))
	}
	return b, ends
}

// expected returns what the session delivers when n bytes of it arrive, and how it ends.
func expected(parts []part, ends []int, n int) (o outcome) {
	o.err = io.EOF
	if n > 0 && !slices.Contains(ends, n) {
		o.err = io.ErrUnexpectedEOF
	}
	for i, p := range parts {
		if ends[i] > n {
			break
		}
		if p.message != "" || len(p.ulpdu) == untaggedLen && p.ulpdu[1] == 0x46 {
			o.messages = append(o.messages, p.message)
		}
		if p.done != 0 {
			o.done = append(o.done, p.done)
		}
		if p.open && ends[i] == n {
			o.err = io.ErrUnexpectedEOF
		}
	}
	return o
}

// placed returns the victim's memory after the whole session.
func placed(v *victim) []byte {
	b := slices.Clone(v.was)
	copy(b[bothAt+5:], pattern(2, 99))
	copy(b[local1At:], pattern(3, local1Len-9001))
	copy(b[local1At+local1Len-9001:], pattern(5, 9001))
	copy(b[local2At:], pattern(6, local2Len))
	copy(b[writeAt+writeLen-1:], pattern(4, 1))
	return b
}

// TestAnyPieces: however the stream is cut, the same is delivered.
func TestAnyPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, crc := range []bool{false, true} {
		parts := session()
		in, ends := stream(crc, parts)
		steps := map[string]func() int{"random": func() int { return 1 + random.IntN(1<<random.IntN(16)) }}
		for _, n := range []int{1, 2, 3, 7, 19, 20, 21, 1000, 4096, 16 << 10, 1 << 20} {
			steps[fmt.Sprint(n)] = step(n)
		}
		for name, next := range steps {
			for range 20 {
				v, s := scripted(t, crc, in, next)
				require.Equal(t, expected(parts, ends, len(in)), v.outcome(), "pieces of %s", name)
				require.Equal(t, placed(v), v.arena, "pieces of %s", name)
				checkAnswers(t, v, crc, s.out)
				if name != "random" {
					break
				}
			}
		}
	}
}

// checkAnswers checks what a scripted victim sends in a session: its two Read Requests, then the
// responses to its peer's.
func checkAnswers(t *testing.T, v *victim, crc bool, out []byte) {
	t.Helper()
	for _, want := range [][]byte{
		untagged(1, true, 0, 1, 1, 0, readRequestOf(1, 0, local1Len, 77, 0)),
		untagged(1, true, 0, 1, 2, 0, readRequestOf(2, 0, local2Len, 78, 0)),
		tagged(2, true, 0xAB, 7, v.was[readAt+8:][:100]),
		tagged(2, true, 0, 0, nil),
	} {
		var ulpdu []byte
		ulpdu, out = takeFPDU(t, crc, out)
		require.Equal(t, want, ulpdu)
	}
	require.Empty(t, out)
}

// TestCutAnywhere: wherever the stream ends, what was complete is delivered, and io.EOF comes only
// between two messages. The test tries every byte except most of the long payloads.
func TestCutAnywhere(t *testing.T) {
	parts := session()
	in, ends := stream(true, parts)
	every := 29
	if testing.Short() {
		every = 97
	}
	for n := range len(in) + 1 {
		near := func(end int) bool { return end-40 <= n && n <= end+40 }
		if n%every != 0 && n > 40 && !slices.ContainsFunc(ends, near) {
			continue
		}
		v, _ := scripted(t, true, in[:n], step(4096))
		want, got := expected(parts, ends, n), v.outcome()
		if !slices.Equal(want.messages, got.messages) || !slices.Equal(want.done, got.done) || want.err != got.err {
			t.Fatalf("of %d bytes came %+v, want %+v", n, got, want)
		}
	}
}

// FuzzStream takes any bytes as a stream of FPDUs. The stream ends with one of the expected kinds
// of error, and changes only memory that the peer may write.
func FuzzStream(f *testing.F) {
	in, ends := stream(false, session())
	f.Add([]byte{0}, in)
	f.Add([]byte{1}, in)
	f.Add([]byte{5, 200}, in)
	start := 0
	for _, end := range ends {
		f.Add([]byte{2}, in[start:end])
		start = end
	}
	withCRC, _ := stream(true, session())
	f.Add([]byte{0x80}, withCRC)
	f.Add([]byte{0xC3}, joined(session()))
	f.Add([]byte{0x43, 9}, joined(session()))
	for _, w := range violations {
		if w.name == "more Reads than IRD" {
			continue
		}
		good, bad := w.act(&victim{both: scriptBoth, reads: scriptReads, writes: scriptWrites})
		b := fpdu(false, untagged(3, true, 0, 0, 1, 0, []byte("before")))
		for _, ulpdu := range append(good, bad) {
			b = append(b, fpdu(false, ulpdu)...)
		}
		f.Add([]byte{0, 100, 3}, b)
	}
	f.Fuzz(func(t *testing.T, how, in []byte) {
		defer watchdog.Start()()
		if len(how) == 0 {
			return
		}
		crc := how[0]&0x80 != 0
		if how[0]&0x40 != 0 {
			in = repaired(in, crc)
		}
		i := 0
		v, s := scripted(t, crc, in, func() int {
			i++
			n := int(how[i%len(how)])
			return 1 + n*n
		})
		o := v.outcome()
		var size int
		for _, m := range o.messages {
			size += len(m)
		}
		if size > len(in) {
			t.Fatalf("%d bytes delivered of %d", size, len(in))
		}
		switch o.err.(type) {
		case *rdma.ProtocolError, *rdma.TerminateError:
		default:
			if o.err != io.EOF && o.err != io.ErrUnexpectedEOF {
				t.Fatalf("ended with %v", o.err)
			}
		}
		v.q.Close() // ends the pump, which writes the Terminate
		checkCanaries(t, v)
		v.q.tx.Lock()
		defer v.q.tx.Unlock()
		for out := s.out; len(out) > 0; {
			_, out = takeFPDU(t, crc, out)
		}
	})
}

// checkCanaries checks that only memory that the peer may write has changed.
func checkCanaries(t *testing.T, v *victim) {
	for _, may := range [][2]int{{bothAt, bothLen}, {writeAt, writeLen}, {local1At, local1Len}, {local2At, local2Len}} {
		copy(v.was[may[0]:][:may[1]], v.arena[may[0]:][:may[1]])
	}
	v.untouched(t, 0, 0)
}

// repaired cuts any bytes into whole FPDUs, which a fuzzer seldom finds.
func repaired(in []byte, crc bool) (b []byte) {
	for len(in) > 2 {
		n := min(int(binary.BigEndian.Uint16(in)), len(in)-2)
		b = append(b, fpdu(crc, in[2:2+n])...)
		in = in[2+n:]
	}
	return append(b, in...)
}

// TestScriptMatchesSessions: the session, and so the seeds, contain no violation.
func TestScriptMatchesSessions(t *testing.T) {
	in, _ := stream(true, session())
	assert.Equal(t, in, repaired(joined(session()), true))
}

// joined returns the session as lengths and ULPDUs, without pads and CRCs.
func joined(parts []part) (b []byte) {
	for _, p := range parts {
		b = binary.BigEndian.AppendUint16(b, uint16(len(p.ulpdu)))
		b = append(b, p.ulpdu...)
	}
	return b
}
