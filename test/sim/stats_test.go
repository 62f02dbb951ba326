package sim

import (
	"fmt"
	"strings"

	"github.com/gosdp/gosdp/wire"
)

// stats are what happened in many runs.
type stats struct {
	messages  [256]int
	riding    int // SrcAvails with payload
	carried   int // SinkAvails with payload
	reqPipe   int
	modes     [2][3]int // ModeChanges, by S and mode
	crossed   int       // SinkAvails that have overridden SrcAvails
	held      int       // SrcAvailCancels whose acknowledgement was held back
	declined  int
	fetched   int
	unfetched int
	unoffered int
	filled    int
	usedUp    int // SinkAvails that payload has used up
	cutWrites int
	bytes     uint64 // without a copy
}

func (s *stats) sent(m *wire.Message) {
	s.messages[m.MID]++
	switch {
	case m.MID == wire.MIDModeChange && m.ModeOfSend:
		s.modes[1][m.Mode]++
	case m.MID == wire.MIDModeChange:
		s.modes[0][m.Mode]++
	case m.MID == wire.MIDSrcAvail && len(m.Payload) > 0:
		s.riding++
	case m.MID == wire.MIDSinkAvail && len(m.Payload) > 0:
		s.carried++
	case m.Flags&wire.FlagReqPipe != 0:
		s.reqPipe++
	}
}

func (s *stats) count(e *end) {
	s.bytes += e.src.Counts().Bytes
}

// lines names each number.
func (s *stats) lines() (names []string, numbers []int) {
	add := func(name string, n int) { names, numbers = append(names, name), append(numbers, n) }
	for _, m := range []wire.MID{
		wire.MIDData, wire.MIDSrcAvail, wire.MIDSinkAvail, wire.MIDSendSm, wire.MIDRdmaRdCompl, wire.MIDRdmaWrCompl,
		wire.MIDSrcAvailCancel, wire.MIDSinkAvailCancel, wire.MIDSinkCancelAck, wire.MIDModeChange, wire.MIDDisConn,
		wire.MIDChRcvBuf, wire.MIDChRcvBufAck,
	} {
		add(m.String(), s.messages[m])
	}
	add("SrcAvail with payload", s.riding)
	add("SrcAvail without payload", s.messages[wire.MIDSrcAvail]-s.riding)
	add("SinkAvail with payload", s.carried)
	add("REQ_PIPE", s.reqPipe)
	add("Combined to Buffered", s.modes[0][wire.ModeBuffered])
	add("Combined to Pipelined", s.modes[0][wire.ModePipelined])
	add("Pipelined to Combined", s.modes[0][wire.ModeCombined])
	add("Buffered to Combined", s.modes[1][wire.ModeCombined])
	add("crossing", s.crossed)
	add("acknowledgement held back", s.held)
	add("SrcAvail declined", s.declined)
	add("RDMA Read", s.fetched)
	add("RDMA Read without room", s.unfetched)
	add("SrcAvail without room", s.unoffered)
	add("SinkAvail filled", s.filled)
	add("SinkAvail used up by payload", s.usedUp)
	add("Write cut short", s.cutWrites)
	return names, numbers
}

func (s *stats) add(o *stats) {
	for i := range s.messages {
		s.messages[i] += o.messages[i]
	}
	for i := range s.modes {
		for j := range s.modes[i] {
			s.modes[i][j] += o.modes[i][j]
		}
	}
	s.riding += o.riding
	s.carried += o.carried
	s.reqPipe += o.reqPipe
	s.crossed += o.crossed
	s.held += o.held
	s.declined += o.declined
	s.fetched += o.fetched
	s.unfetched += o.unfetched
	s.unoffered += o.unoffered
	s.filled += o.filled
	s.usedUp += o.usedUp
	s.cutWrites += o.cutWrites
	s.bytes += o.bytes
}

func (s *stats) String() string {
	var b strings.Builder
	names, numbers := s.lines()
	for i := range names {
		fmt.Fprintf(&b, "%9d  %s\n", numbers[i], names[i])
	}
	fmt.Fprintf(&b, "%9d  bytes without a copy\n", s.bytes)
	return b.String()
}
