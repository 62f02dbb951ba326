package status

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/watchdog"
)

func TestWriteIsReadBack(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	for _, p := range []Program{
		{PlainDials: map[string]uint64{}, PlainAccepts: map[string]uint64{}, Conns: Conns{}},
		{Version: 7, PID: 1, Name: "a\"\\\n\x00\u2028é", UID: 2, Time: at, Open: 3, Opened: 1 << 63, Closing: 4, Memory: -5, MemoryLimit: 6, PlainDials: map[string]uint64{"off": 8}, PlainAccepts: map[string]uint64{"other_host": 9, "rule": 10}, Pinned: map[string]int64{"mlx5_0": 7, "siw0": 0}, Conns: Conns{
			{}, {
				ID: 1, Local: "l", Remote: "r", Device: "d", Dialled: true, Closing: true, Opened: at, OnTCP: "o", Moves: 13, Sent: 1, Received: 2, ZCopySent: 3,
				ZCopyRecv: 4, MsgSent: 5, MsgRecv: 6, Stalls: 7, Unread: 8, SendCredit: 9, RecvCredit: 10, Buffers: 11, BufferSize: 12,
				Mode: "m", Declined: map[string]string{"a": "b", "c": "d"},
			},
		}},
	} {
		var text bytes.Buffer
		require.NoError(t, p.Write(&text))
		var back Program
		d := json.NewDecoder(&text)
		d.DisallowUnknownFields()
		require.NoError(t, d.Decode(&back))
		for i := range p.Conns {
			if p.Conns[i].Declined == nil {
				p.Conns[i].Declined = map[string]string{}
			}
		}
		require.Equal(t, p, back)
	}
}

// TestDocumentIsBounded: a program whose connections have long texts lists fewer of them.
func TestDocumentIsBounded(t *testing.T) {
	long := strings.Repeat("\x00", 108) // the path of a Unix socket, which is escaped
	p := Program{Version: Version, Open: MaxListed}
	for range MaxListed {
		p.Conns = append(p.Conns, Conn{Local: long, Remote: long, Opened: time.Now(), Declined: map[string]string{"shm": long, "verbs": long}})
	}
	var text bytes.Buffer
	require.NoError(t, p.Write(&text))
	require.LessOrEqual(t, text.Len(), MaxDocument)
	require.Greater(t, text.Len(), MaxDocument-10_000)
	var back Program
	require.NoError(t, json.Unmarshal(text.Bytes(), &back))
	require.Equal(t, MaxListed, back.Open)
	require.Equal(t, long, back.Conns[len(back.Conns)-1].Remote)
}

// TestFieldsAreDocumented compares the document with the table in docs/operations.md.
func TestFieldsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "### The status as JSON\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, of := range []reflect.Type{reflect.TypeFor[Program](), reflect.TypeFor[Conn]()} {
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			require.Contains(t, table, "`"+name+"`")
		}
	}
}

func FuzzString(f *testing.F) {
	f.Add("plain")
	f.Add("\xff\"\u2029\x7f")
	f.Fuzz(func(t *testing.T, s string) {
		defer watchdog.Start()()
		var back string
		require.NoError(t, json.Unmarshal(appendString(nil, s), &back))
		require.Equal(t, string([]rune(s)), back)
	})
}
