package zcopy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
)

// act is something that the peer sends, or that we do.
type act func(r *Refusal) error

func srcAvail(size uint32, payload int) act {
	return func(r *Refusal) error { return r.SrcAvail(size, payload) }
}

func data(n int) act {
	return func(r *Refusal) error { r.Data(n); return nil }
}

func change(to wire.Mode) act {
	return func(r *Refusal) error { return r.ModeChange(to) }
}

// sendSm sends one, which must be due.
func sendSm(r *Refusal) error {
	if !r.SendSm() {
		panic("no SendSm is due")
	}
	r.Sent()
	return nil
}

// TestModes is §11 and §12, with what the peer did wrong as the last act.
func TestModes(t *testing.T) {
	const most = 3
	toBuffered, toCombined, toPipelined := change(wire.ModeBuffered), change(wire.ModeCombined), change(wire.ModePipelined)
	for _, v := range []struct {
		name  string
		acts  []act
		error string // of the last; "": none
	}{
		{"Combined: one SrcAvail", []act{srcAvail(100, 10)}, ""},
		{"Combined: one at a time", []act{srcAvail(100, 10), sendSm, data(90), srcAvail(2, 1)}, ""},
		{"Combined: Data in pieces", []act{srcAvail(100, 10), sendSm, data(40), data(0), data(50), srcAvail(2, 1)}, ""},
		{"Combined: Data that goes on behind", []act{srcAvail(100, 10), sendSm, data(1000), srcAvail(2, 1)}, ""},
		{"Combined: largest", []act{srcAvail(1<<31, 1), sendSm, data(1<<31 - 1), srcAvail(2, 1)}, ""},
		{"Combined: without payload", []act{srcAvail(100, 0)}, "§11.2: SrcAvail without payload in Combined mode"},
		{"Combined: a second one", []act{srcAvail(100, 10), srcAvail(100, 10)}, "§11.2: a second SrcAvail in Combined mode"},
		{"Combined: a second one after SendSm", []act{srcAvail(100, 10), sendSm, srcAvail(100, 10)}, "§11.2: a second SrcAvail in Combined mode"},
		{"Combined: a second one too early", []act{srcAvail(100, 10), sendSm, data(89), srcAvail(100, 10)}, "§11.2: a second SrcAvail in Combined mode"},

		{"Buffered: Data", []act{toBuffered, data(100)}, ""},
		{"Buffered: SrcAvail", []act{toBuffered, srcAvail(100, 10)}, "§11.1: SrcAvail in Buffered mode"},
		{"Buffered: SrcAvail without payload", []act{toBuffered, srcAvail(100, 0)}, "§11.1: SrcAvail in Buffered mode"},

		{"Pipelined: many", []act{toPipelined, srcAvail(100, 0), srcAvail(100, 0), srcAvail(100, 0)}, ""},
		{"Pipelined: with payload", []act{toPipelined, srcAvail(100, 1)}, "§11.3: SrcAvail with payload in Pipelined mode"},
		{"Pipelined: too many", []act{toPipelined, srcAvail(100, 0), srcAvail(100, 0), srcAvail(100, 0), srcAvail(100, 0)}, "§6.2.1: more than 3 advertisements"},
		{"Pipelined: too many with the one before", []act{srcAvail(100, 1), toPipelined, srcAvail(100, 0), srcAvail(100, 0), srcAvail(100, 0)}, "§6.2.1: more than 3 advertisements"},
		{"Pipelined: one that has come makes room", []act{toPipelined, srcAvail(100, 0), srcAvail(100, 0), srcAvail(100, 0), sendSm, data(100), srcAvail(100, 0)}, ""},
		{"Pipelined: one message ends one and begins the next", []act{toPipelined, srcAvail(100, 0), srcAvail(100, 0), srcAvail(100, 0), sendSm, sendSm, data(150), srcAvail(100, 0), srcAvail(100, 0)}, "§6.2.1"},

		{"Combined to Buffered", []act{toBuffered}, ""},
		{"Combined to Pipelined", []act{toPipelined}, ""},
		{"Combined to Pipelined with a SrcAvail outstanding (§12.3)", []act{srcAvail(100, 10), toPipelined}, ""},
		{"Pipelined to Combined", []act{toPipelined, toCombined, srcAvail(100, 1)}, ""},
		{"Pipelined to Combined and back", []act{toPipelined, toCombined, toPipelined, srcAvail(100, 0)}, ""},
		{"Combined to Buffered after the SrcAvail", []act{srcAvail(100, 10), sendSm, data(90), toBuffered}, ""},
		{"Combined to Buffered before it is done (§12.1)", []act{srcAvail(100, 10), sendSm, toBuffered}, "§12: the source cannot go from mode 1 to 0"},
		{"Combined to Combined", []act{toCombined}, "§12: the source cannot go from mode 1 to 1"},
		{"Pipelined to Pipelined", []act{toPipelined, toPipelined}, "§12: the source cannot go from mode 2 to 2"},
		{"Buffered to Buffered", []act{toBuffered, toBuffered}, "§12: the source cannot go from mode 0 to 0"},
		{"Pipelined to Buffered", []act{toPipelined, toBuffered}, "§12: the source cannot go from mode 2 to 0"},
		{"Buffered to Combined is the sink's", []act{toBuffered, toCombined}, "§12: the source cannot go from mode 0 to 1"},
		{"Buffered to Pipelined", []act{toBuffered, toPipelined}, "§12: the source cannot go from mode 0 to 2"},
	} {
		t.Run(v.name, func(t *testing.T) {
			r := NewRefusal(most)
			for i, a := range v.acts {
				err := a(&r)
				if i == len(v.acts)-1 && v.error != "" {
					assert.ErrorContains(t, err, v.error)
				} else {
					require.NoError(t, err, "act %d", i)
				}
			}
		})
	}
}

// TestSendSm is one for each SrcAvail (§9.2), and none for what was refused.
func TestSendSm(t *testing.T) {
	r := NewRefusal(16)
	assert.False(t, r.SendSm())
	require.NoError(t, r.ModeChange(wire.ModePipelined))
	for range 5 {
		require.NoError(t, r.SrcAvail(10, 0))
	}
	require.Error(t, r.SrcAvail(10, 1))
	for range 5 {
		require.True(t, r.SendSm())
		r.Sent()
	}
	assert.False(t, r.SendSm())
	r.Data(50)
	assert.False(t, r.SendSm())
}
