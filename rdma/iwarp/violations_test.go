package iwarp

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// violations are what a hostile peer does with FPDUs. good precedes the violation and is correct;
// bad is the ULPDU that violates a rule. The rules are those that docs/protocol.md builds on;
// package engine has the tables for the rules of that page.
var violations = []struct {
	name       string
	rule, what string  // of the *rdma.ProtocolError
	term       [3]byte // layer, type and code of the Terminate
	act        func(v *victim) (good [][]byte, bad []byte)

	crc      bool   // only with CRC, and bad's is wrong
	cut      int    // send no more bytes of bad's FPDU
	headers  int    // of bad that the Terminate repeats; 0: none
	reads    bool   // the victim has Reads outstanding
	messages int    // of good that are delivered
	done     int    // Reads that good completes
	changed  [2]int // the part of the arena that may have changed
}{
	{name: "bad CRC of a Send", rule: "RFC 5044 §4.4", what: "CRC of an FPDU of 23 bytes is wrong", term: [3]byte{2, 0, 2}, crc: true,
		act: only(untagged(3, true, 0, 0, 2, 0, []byte("wrong")))},
	{name: "bad CRC of a Write", rule: "RFC 5044 §4.4", what: "CRC of an FPDU of 114 bytes is wrong", term: [3]byte{2, 0, 2}, crc: true,
		act: writing(func(v *victim) []byte { return tagged(0, true, v.both, 0, make([]byte, 100)) })},
	{name: "bad CRC of a Read Request", rule: "RFC 5044 §4.4", what: "CRC", term: [3]byte{2, 0, 2}, crc: true,
		act: writing(func(v *victim) []byte { return untagged(1, true, 0, 1, 1, 0, readRequestOf(1, 0, 8, v.both, 0)) })},
	{name: "bad CRC of a Write that is placed as it comes", rule: "RFC 5044 §4.4", what: "CRC of a tagged FPDU is wrong", term: [3]byte{2, 0, 2}, crc: true,
		act:     writing(func(v *victim) []byte { return tagged(0, true, v.both, 100, make([]byte, 30000)) }),
		changed: [2]int{bothAt + 100, bothAt + 100 + 30000}},
	{name: "bad CRC of a Read Response that is placed as it comes", rule: "RFC 5044 §4.4", what: "CRC of a tagged FPDU is wrong", term: [3]byte{2, 0, 2}, crc: true,
		act: only(tagged(2, true, 1, 0, make([]byte, local1Len))), reads: true,
		changed: [2]int{local1At, local1At + local1Len}},

	{name: "FPDU of nothing", rule: "RFC 5044 §4.1", what: "FPDU of 0 bytes", term: [3]byte{2, 0, 3}, act: only(nil)},
	{name: "FPDU of 13 bytes", rule: "RFC 5044 §4.1", what: "FPDU of 13 bytes is shorter than any header", term: [3]byte{2, 0, 3}, act: only(tagged(0, true, 0, 0, nil)[:13])},
	{name: "untagged segment of 17 bytes", rule: "RFC 5041 §4", what: "segment of 17 bytes is shorter than its header", term: [3]byte{2, 0, 3}, act: only(untagged(3, true, 0, 0, 2, 0, nil)[:17])},

	{name: "DDP version 0, untagged", rule: "RFC 5041 §7.1", what: "DDP version 0", term: [3]byte{1, 2, 6}, headers: 18, act: only(set(untagged(3, true, 0, 0, 2, 0, nil), 0, 0x40))},
	{name: "DDP version 2, untagged", rule: "RFC 5041 §7.1", what: "DDP version 2", term: [3]byte{1, 2, 6}, headers: 18, act: only(set(untagged(3, true, 0, 0, 2, 0, nil), 0, 0x42))},
	{name: "DDP version 3, tagged", rule: "RFC 5041 §7.1", what: "DDP version 3", term: [3]byte{1, 1, 4}, headers: 14, act: only(set(tagged(0, true, 0, 0, nil), 0, 0xC3))},
	{name: "DDP version 0, tagged and long", rule: "RFC 5041 §7.1", what: "DDP version 0", term: [3]byte{1, 1, 4}, headers: 14, act: only(set(tagged(0, true, 0, 0, make([]byte, 30000)), 0, 0xC0)), cut: 64},
	{name: "RDMAP version 0", rule: "RFC 5040 §4.1", what: "RDMAP version 0", term: [3]byte{0, 2, 5}, headers: 18, act: only(set(untagged(3, true, 0, 0, 2, 0, nil), 1, 0x03))},
	{name: "RDMAP version 3, tagged", rule: "RFC 5040 §4.1", what: "RDMAP version 3", term: [3]byte{0, 2, 5}, headers: 14, act: only(set(tagged(0, true, 0, 0, nil), 1, 0xC0))},
	{name: "opcode 8", rule: "RFC 5040 §4.3", what: "opcode 8 with tagged=false", term: [3]byte{0, 2, 6}, headers: 18, act: only(untagged(8, true, 0, 0, 2, 0, nil))},
	{name: "opcode 15, tagged", rule: "RFC 5040 §4.3", what: "opcode 15 with tagged=true", term: [3]byte{0, 2, 6}, headers: 14, act: only(tagged(15, true, 0, 0, nil))},
	{name: "untagged Write", rule: "RFC 5040 §4.3", what: "opcode 0 with tagged=false", term: [3]byte{0, 2, 6}, headers: 18, act: only(untagged(0, true, 0, 0, 2, 0, nil))},
	{name: "untagged Read Response", rule: "RFC 5040 §4.3", what: "opcode 2 with tagged=false", term: [3]byte{0, 2, 6}, headers: 18, act: only(untagged(2, true, 0, 0, 2, 0, nil))},
	{name: "tagged Send", rule: "RFC 5040 §4.3", what: "opcode 3 with tagged=true", term: [3]byte{0, 2, 6}, headers: 14, act: only(tagged(3, true, 0, 0, nil))},
	{name: "tagged Read Request", rule: "RFC 5040 §4.3", what: "opcode 1 with tagged=true", term: [3]byte{0, 2, 6}, headers: 14, act: only(tagged(1, true, 0, 0, nil))},
	{name: "tagged Terminate", rule: "RFC 5040 §4.3", what: "opcode 7 with tagged=true", term: [3]byte{0, 2, 6}, headers: 14, act: only(tagged(7, true, 0, 0, nil))},

	{name: "Send on queue 1", rule: "RFC 5041 §5.1", what: "Send on queue 1", term: [3]byte{1, 2, 1}, headers: 18, act: only(untagged(3, true, 0, 1, 2, 0, nil))},
	{name: "Send on queue 2³¹", rule: "RFC 5041 §5.1", what: "Send on queue 2147483648", term: [3]byte{1, 2, 1}, headers: 18, act: only(untagged(5, true, 0, 1<<31, 2, 0, nil))},
	{name: "Read Request on queue 0", rule: "RFC 5041 §5.1", what: "Read Request on queue 0", term: [3]byte{1, 2, 1}, headers: 46,
		act: writing(func(v *victim) []byte { return untagged(1, true, 0, 0, 1, 0, readRequestOf(1, 0, 8, v.both, 0)) })},
	{name: "Terminate on queue 0", rule: "RFC 5041 §5.1", what: "Terminate on queue 0", term: [3]byte{1, 2, 1}, headers: 18, act: only(untagged(7, true, 0, 0, 1, 0, make([]byte, 4)))},

	{name: "Send again", rule: "RFC 5041 §5.2", what: "Send number 1, expected 2", term: [3]byte{1, 2, 3}, headers: 18, act: only(untagged(3, true, 0, 0, 1, 0, []byte("again")))},
	{name: "Send left out", rule: "RFC 5041 §5.2", what: "Send number 3, expected 2", term: [3]byte{1, 2, 3}, headers: 18, act: only(untagged(3, true, 0, 0, 3, 0, nil))},
	{name: "Send number 0", rule: "RFC 5041 §5.2", what: "Send number 0, expected 2", term: [3]byte{1, 2, 3}, headers: 18, act: only(untagged(6, true, 0, 0, 0, 0, nil))},
	{name: "another Send inside of one", rule: "RFC 5041 §5.2", what: "Send number 3, expected 2", term: [3]byte{1, 2, 3}, headers: 18,
		act: after(only(untagged(3, true, 0, 0, 3, 5, nil)), untagged(3, false, 0, 0, 2, 0, []byte("begin")))},
	{name: "Read Request left out", rule: "RFC 5041 §5.2", what: "Read Request number 2, expected 1", term: [3]byte{1, 2, 3}, headers: 46,
		act: writing(func(v *victim) []byte { return untagged(1, true, 0, 1, 2, 0, readRequestOf(1, 0, 8, v.both, 0)) })},

	{name: "first segment not at 0", rule: "RFC 5041 §5.2", what: "segment at offset 1, expected 0", term: [3]byte{1, 2, 4}, headers: 18, act: only(untagged(3, true, 0, 0, 2, 1, []byte("x")))},
	{name: "hole between segments", rule: "RFC 5041 §5.2", what: "segment at offset 6, expected 5", term: [3]byte{1, 2, 4}, headers: 18,
		act: after(only(untagged(3, true, 0, 0, 2, 6, []byte("x"))), untagged(3, false, 0, 0, 2, 0, []byte("begin")))},
	{name: "overlapping segments", rule: "RFC 5041 §5.2", what: "segment at offset 4, expected 5", term: [3]byte{1, 2, 4}, headers: 18,
		act: after(only(untagged(3, true, 0, 0, 2, 4, []byte("x"))), untagged(3, false, 0, 0, 2, 0, []byte("begin")))},
	{name: "segment at 2³²-1", rule: "RFC 5041 §5.2", what: "expected 0", term: [3]byte{1, 2, 4}, headers: 18, act: only(untagged(3, true, 0, 0, 2, 1<<32-1, []byte("x")))},

	{name: "Send of a byte too many", rule: "RFC 5041 §7.1", what: "message of 1001 bytes or more for a buffer of 1000", term: [3]byte{1, 2, 5}, headers: 18,
		act: after(only(untagged(3, true, 0, 0, 3, 0, make([]byte, victimSize+1))), untagged(3, true, 0, 0, 2, 0, make([]byte, victimSize))), messages: 1},
	{name: "Send of a byte too many in segments", rule: "RFC 5041 §7.1", what: "message of 1001 bytes or more for a buffer of 1000", term: [3]byte{1, 2, 5}, headers: 18,
		act: after(only(untagged(3, true, 0, 0, 2, 1000, []byte("x"))), untagged(3, false, 0, 0, 2, 0, make([]byte, 600)), untagged(3, false, 0, 0, 2, 600, make([]byte, 400)))},
	{name: "Send of 64 KB", rule: "RFC 5041 §7.1", what: "message of 65517 bytes or more for a buffer of 1000", term: [3]byte{1, 2, 5}, headers: 18, act: only(untagged(3, true, 0, 0, 2, 0, make([]byte, 65517)))},

	{name: "Send with Invalidate of an unknown STag", rule: "RFC 5040 §5.3", what: "STag 0x5 to invalidate is not registered here", term: [3]byte{0, 2, 9}, headers: 18, act: only(untagged(4, true, 5, 0, 2, 0, []byte("x")))},
	{name: "Send with SE and Invalidate of an unknown STag in segments", rule: "RFC 5040 §5.3", what: "STag 0x5 to invalidate is not registered here", term: [3]byte{0, 2, 9}, headers: 18,
		act: after(only(untagged(6, true, 5, 0, 2, 5, []byte("x"))), untagged(6, false, 5, 0, 2, 0, []byte("begin")))},
	{name: "Send with Invalidate twice", rule: "RFC 5040 §5.3", what: "to invalidate is not registered here", term: [3]byte{0, 2, 9}, headers: 18, messages: 1,
		act: func(v *victim) ([][]byte, []byte) {
			return [][]byte{untagged(4, true, v.both, 0, 2, 0, []byte("x"))}, untagged(4, true, v.both, 0, 3, 0, []byte("x"))
		}},

	{name: "Send with Invalidate of the STag of a Read", rule: "RFC 5040 §5.3", what: "STag 0x1 to invalidate is not registered here", term: [3]byte{0, 2, 9}, headers: 18, reads: true, act: only(untagged(4, true, 1, 0, 2, 0, []byte("x")))},

	{name: "Write to an unknown STag", rule: "RFC 5041 §5.3", what: "STag 0x5 is not registered here", term: [3]byte{1, 1, 0}, headers: 14, act: only(tagged(0, true, 5, 0, []byte("x")))},
	{name: "Write to STag 0", rule: "RFC 5041 §5.3", what: "STag 0x0 is not registered here", term: [3]byte{1, 1, 0}, headers: 14, act: only(tagged(0, true, 0, 0, []byte("x")))},
	{name: "Write to an invalidated STag", rule: "RFC 5041 §5.3", what: "is not registered here", term: [3]byte{1, 1, 0}, headers: 14, messages: 1,
		act: func(v *victim) ([][]byte, []byte) {
			return [][]byte{untagged(4, true, v.both, 0, 2, 0, []byte("x"))}, tagged(0, true, v.both, 0, []byte("x"))
		}},
	{name: "Write to a region that may be read", rule: "RFC 5041 §5.3", what: "does not allow this access", term: [3]byte{1, 1, 0}, headers: 14,
		act: writing(func(v *victim) []byte { return tagged(0, true, v.reads, 0, []byte("x")) })},
	{name: "Write to the STag of a Read", rule: "RFC 5041 §5.3", what: "STag 0x1 is not registered here", term: [3]byte{1, 1, 0}, headers: 14, act: only(tagged(0, true, 1, 0, []byte("x"))), reads: true},
	{name: "Write past the end", rule: "RFC 5041 §5.3", what: "is past the 32768 bytes", term: [3]byte{1, 1, 1}, headers: 14,
		act: writing(func(v *victim) []byte { return tagged(0, true, v.both, bothLen-3, []byte("four")) })},
	{name: "Write after the end", rule: "RFC 5041 §5.3", what: "is past the 32768 bytes", term: [3]byte{1, 1, 1}, headers: 14,
		act: writing(func(v *victim) []byte { return tagged(0, true, v.both, bothLen, []byte("x")) })},
	{name: "Write far after the end", rule: "RFC 5041 §5.3", what: "is past the 32768 bytes", term: [3]byte{1, 1, 1}, headers: 14,
		act: writing(func(v *victim) []byte { return tagged(0, true, v.both, 1<<63, []byte("x")) })},
	{name: "Write that wraps around", rule: "RFC 5041 §5.3", what: "wraps around", term: [3]byte{1, 1, 3}, headers: 14,
		act: writing(func(v *victim) []byte { return tagged(0, true, v.both, 1<<64-2, []byte("four")) })},
	{name: "long Write to an unknown STag", rule: "RFC 5041 §5.3", what: "STag 0x5 is not registered here", term: [3]byte{1, 1, 0}, headers: 14, act: only(tagged(0, true, 5, 0, make([]byte, 30000))), cut: 64},
	{name: "long Write past the end", rule: "RFC 5041 §5.3", what: "is past the 32768 bytes", term: [3]byte{1, 1, 1}, headers: 14, cut: 64,
		act: writing(func(v *victim) []byte { return tagged(0, true, v.both, 1, make([]byte, bothLen)) })},
	{name: "long Write that wraps around", rule: "RFC 5041 §5.3", what: "wraps around", term: [3]byte{1, 1, 3}, headers: 14, cut: 64,
		act: writing(func(v *victim) []byte { return tagged(0, true, v.both, 1<<64-1, make([]byte, bothLen)) })},
	{name: "long Write to a region that may be read", rule: "RFC 5041 §5.3", what: "does not allow this access", term: [3]byte{1, 1, 0}, headers: 14, cut: 64,
		act: writing(func(v *victim) []byte { return tagged(0, true, v.reads, 0, make([]byte, 30000)) })},

	{name: "Read of an unknown STag", rule: "RFC 5040 §5.2", what: "STag 0x5 is not registered here", term: [3]byte{0, 1, 0}, headers: 46, act: only(untagged(1, true, 0, 1, 1, 0, readRequestOf(1, 0, 8, 5, 0)))},
	{name: "Read of a region that may be written", rule: "RFC 5040 §5.2", what: "does not allow this access", term: [3]byte{0, 1, 2}, headers: 46,
		act: writing(func(v *victim) []byte { return untagged(1, true, 0, 1, 1, 0, readRequestOf(1, 0, 8, v.writes, 0)) })},
	{name: "Read past the end", rule: "RFC 5040 §5.2", what: "is past the 8192 bytes", term: [3]byte{0, 1, 1}, headers: 46,
		act: writing(func(v *victim) []byte { return untagged(1, true, 0, 1, 1, 0, readRequestOf(1, 0, readLen, v.reads, 1)) })},
	{name: "Read of 4 GB", rule: "RFC 5040 §5.2", what: "is past the 8192 bytes", term: [3]byte{0, 1, 1}, headers: 46,
		act: writing(func(v *victim) []byte { return untagged(1, true, 0, 1, 1, 0, readRequestOf(1, 0, 1<<32-1, v.reads, 0)) })},
	{name: "Read that wraps around", rule: "RFC 5040 §5.2", what: "wraps around", term: [3]byte{0, 1, 4}, headers: 46,
		act: writing(func(v *victim) []byte { return untagged(1, true, 0, 1, 1, 0, readRequestOf(1, 0, 8, v.reads, 1<<64-4)) })},
	{name: "Read into what wraps around", rule: "RFC 5040 §5.2", what: "sink offset 0xfffffffffffffffc + 8 wraps around", term: [3]byte{0, 1, 4}, headers: 46,
		act: writing(func(v *victim) []byte { return untagged(1, true, 0, 1, 1, 0, readRequestOf(1, 1<<64-4, 8, v.reads, 0)) })},
	{name: "Read Request of 27 bytes", rule: "RFC 5040 §4.4", what: "Read Request of 27 bytes", term: [3]byte{1, 2, 5}, headers: 18,
		act: writing(func(v *victim) []byte { return untagged(1, true, 0, 1, 1, 0, readRequestOf(1, 0, 8, v.reads, 0)[:27]) })},
	{name: "Read Request of 29 bytes", rule: "RFC 5040 §4.4", what: "Read Request of 29 bytes", term: [3]byte{1, 2, 5}, headers: 46,
		act: writing(func(v *victim) []byte {
			return untagged(1, true, 0, 1, 1, 0, append(readRequestOf(1, 0, 8, v.reads, 0), 0))
		})},
	{name: "Read Request in two segments", rule: "RFC 5040 §4.4", what: "Read Request in several segments", term: [3]byte{1, 2, 4}, headers: 18,
		act: writing(func(v *victim) []byte { return untagged(1, false, 0, 1, 1, 0, readRequestOf(1, 0, 8, v.reads, 0)[:14]) })},
	{name: "Read Request not at 0", rule: "RFC 5040 §4.4", what: "Read Request in several segments", term: [3]byte{1, 2, 4}, headers: 46,
		act: writing(func(v *victim) []byte { return untagged(1, true, 0, 1, 1, 28, readRequestOf(1, 0, 8, v.reads, 0)) })},

	{name: "Read Response without a Read", rule: "RFC 5040 §5.2", what: "Read Response without a Read", term: [3]byte{1, 1, 0}, headers: 14, act: only(tagged(2, true, 1, 0, []byte("x")))},
	{name: "Read Response of nothing without a Read", rule: "RFC 5040 §5.2", what: "Read Response without a Read", term: [3]byte{1, 1, 0}, headers: 14, act: only(tagged(2, true, 1, 0, nil))},
	{name: "Read Response after the last Read", rule: "RFC 5040 §5.2", what: "Read Response without a Read", term: [3]byte{1, 1, 0}, headers: 14, reads: true, done: 2, changed: [2]int{local1At, local2At + local2Len},
		act: after(only(tagged(2, true, 3, 0, nil)), tagged(2, true, 1, 0, make([]byte, local1Len)), tagged(2, true, 2, 0, make([]byte, local2Len)))},
	{name: "Read Response to the younger Read", rule: "RFC 5040 §5.2", what: "Read Response for STag 0x2, the oldest Read has 0x1", term: [3]byte{1, 1, 0}, headers: 14, reads: true, act: only(tagged(2, true, 2, 0, make([]byte, local2Len)))},
	{name: "Read Response not at 0", rule: "RFC 5040 §5.2", what: "Read Response at offset 1, expected 0", term: [3]byte{1, 1, 1}, headers: 14, reads: true, act: only(tagged(2, false, 1, 1, []byte("x")))},
	{name: "Read Response with a hole", rule: "RFC 5040 §5.2", what: "Read Response at offset 6, expected 5", term: [3]byte{1, 1, 1}, headers: 14, reads: true, changed: [2]int{local1At, local1At + 5},
		act: after(only(tagged(2, false, 1, 6, []byte("x"))), tagged(2, false, 1, 0, []byte("begin")))},
	{name: "Read Response of a byte too many", rule: "RFC 5040 §5.2", what: "for a Read of 26624", term: [3]byte{1, 1, 1}, headers: 14, reads: true, act: only(tagged(2, true, 1, 0, make([]byte, local1Len+1))), cut: 64},
	{name: "Read Response that ends early", rule: "RFC 5040 §5.2", what: "Read Response of 1 bytes at 0 (last true) for a Read of 26624", term: [3]byte{1, 1, 1}, headers: 14, reads: true, act: only(tagged(2, true, 1, 0, []byte("x")))},
	{name: "Read Response that does not end", rule: "RFC 5040 §5.2", what: "(last false) for a Read of 26624", term: [3]byte{1, 1, 1}, headers: 14, reads: true, act: only(tagged(2, false, 1, 0, make([]byte, local1Len))), cut: 64},
	{name: "Read Response at 2⁶³", rule: "RFC 5040 §5.2", what: "Read Response at offset 9223372036854775808, expected 0", term: [3]byte{1, 1, 1}, headers: 14, reads: true, act: only(tagged(2, false, 1, 1<<63, []byte("x")))},

	{name: "Send without a buffer", rule: "RFC 5041 §7.1", what: "message 5 has no buffer posted for it", term: [3]byte{1, 2, 2}, headers: 18, messages: 3, act: sends(2, 3, 4, 5)},
	{name: "Send in segments without a buffer", rule: "RFC 5041 §7.1", what: "message 5 has no buffer posted for it", term: [3]byte{1, 2, 2}, headers: 18, messages: 3,
		act: func(v *victim) ([][]byte, []byte) {
			good, _ := sends(2, 3, 4, 5)(v)
			return good, untagged(3, false, 0, 0, 5, 0, []byte("begin"))
		}},
	{name: "more Reads than IRD", rule: "RFC 5040 §5.2", what: "more than 2 RDMA Reads outstanding", term: [3]byte{1, 2, 2}, headers: 46,
		act: func(v *victim) ([][]byte, []byte) {
			big, err := v.q.Register(make([]byte, 8<<20), rdma.RemoteRead)
			if err != nil {
				panic(err)
			}
			read := func(msn uint32) []byte {
				return untagged(1, true, 0, 1, msn, 0, readRequestOf(msn, 0, 8<<20, uint32(big.STag), 0))
			}
			return [][]byte{read(1), read(2)}, read(3)
		}},
}

// only returns a violation that nothing precedes.
func only(bad []byte) func(*victim) ([][]byte, []byte) {
	return func(*victim) ([][]byte, []byte) { return nil, bad }
}

// writing is like only, with the victim's STags.
func writing(bad func(v *victim) []byte) func(*victim) ([][]byte, []byte) {
	return func(v *victim) ([][]byte, []byte) { return nil, bad(v) }
}

// after puts good ULPDUs before a violation.
func after(act func(*victim) ([][]byte, []byte), good ...[]byte) func(*victim) ([][]byte, []byte) {
	return func(v *victim) ([][]byte, []byte) {
		_, bad := act(v)
		return good, bad
	}
}

// sends returns Sends with these numbers, the last of which is the violation.
func sends(msns ...uint32) func(*victim) ([][]byte, []byte) {
	return func(*victim) (good [][]byte, bad []byte) {
		for _, msn := range msns {
			good = append(good, untagged(3, true, 0, 0, msn, 0, []byte("more")))
		}
		return good[:len(good)-1], good[len(good)-1]
	}
}

// set replaces a byte.
func set(b []byte, i int, x byte) []byte {
	b[i] = x
	return b
}

// TestViolations: the victim's error names the rule, a Terminate tells the peer, nothing of the
// violation is placed, and nothing is left behind.
func TestViolations(t *testing.T) {
	defer heapBack(t)()
	for _, variant := range hostileVariants {
		t.Run(variant.name, func(t *testing.T) {
			for _, w := range violations {
				if w.crc && !variant.crc {
					continue
				}
				t.Run(w.name, func(t *testing.T) {
					defer leavesNothing(t)()
					v, peer := hostileTo(t, variant.crc, variant.stream)
					defer peer.Close()
					defer v.q.Close()
					if w.reads {
						v.read(t)
					}
					good, bad := w.act(v)
					stream := fpdu(variant.crc, tagged(0, true, 1, 0, nil)) // a responder may send after it
					stream = append(stream, fpdu(variant.crc, untagged(3, true, 0, 0, 1, 0, []byte("before")))...)
					for _, ulpdu := range good {
						stream = append(stream, fpdu(variant.crc, ulpdu)...)
					}
					last := fpdu(variant.crc, bad)
					if w.crc {
						last[len(last)-2] ^= 1
					}
					if w.cut > 0 {
						stream = append(stream, last[:w.cut]...)
					} else {
						stream = append(stream, last...)
						stream = append(stream, fpdu(variant.crc, untagged(3, true, 0, 0, 2, 0, []byte("after")))...)
					}
					var writer sync.WaitGroup
					writer.Go(func() {
						peer.Write(stream)
						peer.CloseWrite() // a victim that finds nothing wrong finds the end
					})
					var held []rdma.Completion // so that no buffer is posted again before the end
					var err error
					for err == nil {
						var wcs [1]rdma.Completion
						if _, err = v.q.Wait(wcs[:]); err == nil {
							held = append(held, wcs[0])
						}
					}
					writer.Wait()

					var violation *rdma.ProtocolError
					require.ErrorAs(t, err, &violation)
					assert.Equal(t, w.rule, violation.Rule)
					assert.Contains(t, violation.What, w.what)
					_, again := v.q.Wait(make([]rdma.Completion, 1))
					assert.Equal(t, err, again, "the error stays")
					_, err = v.q.PostSend([]rdma.SendWR{{Header: []byte("x")}})
					assert.ErrorAs(t, err, &violation, "nothing can be sent")

					var o outcome
					for _, wc := range held {
						if wc.Op == rdma.OpReceive {
							o.messages = append(o.messages, string(wc.Buffer.Bytes))
							wc.Buffer.Release()
						} else {
							o.done = append(o.done, wc.ID)
						}
					}
					require.Len(t, o.messages, 1+w.messages)
					assert.Equal(t, "before", o.messages[0])
					assert.Equal(t, []uint64{1, 2}[:w.done], append([]uint64{}, o.done...))
					v.untouched(t, w.changed[0], w.changed[1])

					ulpdus, err := readFPDUs(t, variant.crc, peer)
					require.NoError(t, err, "a Terminate comes")
					checkTerminate(t, ulpdus[len(ulpdus)-1], w.term, bad, w.headers)
					v.q.Close()
					checkEnd(t, peer)
				})
			}
		})
	}
}
