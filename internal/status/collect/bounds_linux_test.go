//go:build linux

package collect

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/status"
)

// full returns the document of a program with many connections.
func full(t *testing.T, conns int) string {
	t.Helper()
	text := strings.Repeat("x", 80)
	c := status.Conn{Local: text, Remote: text, Device: "shm", Mode: "zcopy", Sent: 1 << 62, Declined: map[string]string{"verbs": text}}
	p := status.Program{Version: status.Version, Name: "full"}
	for range conns {
		p.Conns = append(p.Conns, c)
	}
	var b strings.Builder
	require.NoError(t, p.Write(&b))
	return b.String()
}

// TestManyConnectionsAreListed of several programs.
func TestManyConnectionsAreListed(t *testing.T) {
	giveTime(t, time.Minute)
	conns := status.MaxListed
	if testing.Short() {
		conns /= 20
	}
	dir, text := newDir(t), full(t, conns)
	for range 4 {
		serve(t, dir, says(text))
	}
	programs, _ := collectUntil(t, dir)
	require.Len(t, programs, 4)
	for _, p := range programs {
		require.Len(t, p.Conns, conns)
	}
}

// TestDecodingIsBounded: what takes too long is left out, and named. No user's programs wait for all
// programs of another.
func TestDecodingIsBounded(t *testing.T) {
	giveTime(t, 0)
	many, few := newDir(t), newDir(t)
	serve(t, many, says(full(t, 100)))
	_, failures := Collect([]string{many})
	require.Len(t, failures, 1)
	require.ErrorIs(t, failures[0].Err, errLong)
	_, err := decode([]byte(`{"version":1,"connections":[{}`+strings.Repeat(",{}", maxConns-1)+`]}`), maxConns, time.Now().Add(time.Millisecond))
	require.ErrorIs(t, err, errLong)
	a := func(dir string, n int) answer {
		return answer{socket: socket{&directory{path: dir}, fmt.Sprint(n)}, text: make([]byte, n)}
	}
	var order []string
	for _, a := range inTurns([]*visit{{answers: []answer{a(many, 3), a(many, 1), a(many, 2)}}, {answers: []answer{a(few, 4)}}}) {
		order = append(order, a.socket.path())
	}
	require.Equal(t, []string{many + "/1", few + "/4", many + "/2", many + "/3"}, order)
}

func TestConnectionsAreBounded(t *testing.T) {
	_, err := decodeText(`{"version":1,"connections":[{}` + strings.Repeat(",{}", maxConns) + `]}`)
	require.ErrorContains(t, err, "more than 20000 connections")
	p, err := decodeText(`{"version":1,"pid":7,"connections":[{},{"id":3}]}`)
	require.NoError(t, err)
	require.Equal(t, status.Program{Version: 1, PID: 7, Conns: status.Conns{{}, {ID: 3}}}, p)
}

func TestTextsAreShort(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	p, err := decodeText(`{"version":1,"name":"` + long + `","connections":[{"local":"` + long + `","declined":{"shm":"` + long + `"}}]}`)
	require.NoError(t, err)
	require.Len(t, p.Name, maxText)
	require.Len(t, p.Conns[0].Local, maxText)
	require.Len(t, p.Conns[0].Declined["shm"], maxText)
}

// TestMapsAreBounded: neither a connection nor a program names any number of devices.
func TestMapsAreBounded(t *testing.T) {
	members := func(n int, value string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%d":%s`, i, value)
		}
		return "{" + strings.TrimPrefix(b.String(), ",") + "}"
	}
	declined := func(object string) string { return `{"version":1,"connections":[{"declined":` + object + `}]}` }
	pinned := func(object string) string { return `{"version":1,"pinned":` + object + `}` }
	for _, v := range []struct{ text, want string }{
		{declined(members(maxDeclined, `"x"`)), ""},
		{declined(members(maxDeclined+1, `"x"`)), "more than 8 devices"},
		{declined("null"), ""},
		{declined("7"), "not an object"},
		{declined(`{"shm":7}`), "cannot unmarshal"},
		{pinned(members(maxPinned, "1")), ""},
		{pinned(members(maxPinned+1, "1")), "more than 64 devices"},
	} {
		_, err := decodeText(v.text)
		if v.want == "" {
			require.NoError(t, err, v.text)
		} else {
			require.ErrorContains(t, err, v.want, v.text)
		}
	}
	long := strings.Repeat("x", 10_000)
	p, err := decodeText(declined(`{"` + long + `":""}`))
	require.NoError(t, err)
	require.Equal(t, map[string]string{long[:maxKey]: ""}, p.Conns[0].Declined)
	p, err = decodeText(pinned(`{"` + long + `":7}`))
	require.NoError(t, err)
	require.Equal(t, map[string]int64{long[:maxKey]: 7}, p.Pinned)
}

// TestProgramsOfAUserAreBounded: neither long answers nor many connections add up without limit.
func TestProgramsOfAUserAreBounded(t *testing.T) {
	giveTime(t, time.Minute)
	const document, user, users = 1 << 20, 4, 4 // MB
	all := newBudget(user * users << 20)
	long, short := strings.Repeat(" ", document), strings.Repeat(" ", 1000)
	for range users { // use up their share
		b := budgets{newBudget(user << 20), all}
		for range 5 { // what is refused is given back
			_, err := read(io.MultiReader(strings.NewReader(long), iotest.ErrReader(io.ErrUnexpectedEOF)), b)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		for range user {
			_, err := read(strings.NewReader(long), b)
			require.NoError(t, err)
		}
		_, err := read(strings.NewReader(short), b)
		require.ErrorContains(t, err, "total size of answers exceeds 4 MB")
	}
	b := budgets{newBudget(user << 20), all}
	_, err := read(strings.NewReader(short), b)
	require.ErrorContains(t, err, "total size of answers exceeds 16 MB")
	_, err = read(strings.NewReader(strings.Repeat(" ", status.MaxDocument+1)), budgets{newBudget(maxUserBytes), newBudget(maxAllBytes)})
	require.ErrorContains(t, err, "answer exceeds 8 MB")

	many := []byte(`{"version":1,"connections":[{}` + strings.Repeat(",{}", maxConns-1) + `]}`)
	var answers []answer
	for range 8 {
		d := &directory{}
		for range 3 {
			answers = append(answers, answer{socket: socket{d, "x"}, text: many})
		}
	}
	listed, failures := decodeAll(answers)
	require.Len(t, listed, maxAllConns/maxConns)
	require.ErrorIs(t, failures[0].Err, errMany)
	listed, _ = decodeAll(answers[3:6])
	require.Empty(t, listed, "the texts are kept")
}

func TestManyClientsAreBounded(t *testing.T) {
	dir := newDir(t)
	hold := make(chan struct{})
	s := serve(t, dir, func(io.Writer) error { <-hold; return nil })
	var clients []net.Conn
	closed := 0
	for range 20 {
		c, err := net.Dial("unix", s.Path())
		require.NoError(t, err)
		defer c.Close()
		clients = append(clients, c)
	}
	for _, c := range clients[4:] {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err == io.EOF {
			closed++
		}
	}
	require.Equal(t, 20-4, closed)
	close(hold)
}
