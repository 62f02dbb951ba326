package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/conntest"
)

// Most of what a connection promises shows between two processes only. The
// second one is this test binary again: it listens, and on each connection it
// does what the first line of it says, a script of steps with commas between.
// bePeer is the main function of the second process.
func bePeer(string) {
	ln, err := engineListen()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(ln.Addr())
	for {
		c, err := ln.Accept()
		if err != nil {
			os.Exit(1)
		}
		go perform(c.(*Conn))
	}
}

// released lets one script go on from its step "wait".
var released = make(chan struct{}, 1)

// perform carries out the script of one connection, and closes it at the end.
func perform(c *Conn) {
	defer c.Close()
	script, b := "", make([]byte, 1) // byte by byte: what follows is for the steps
	for b[0] != '\n' {
		if _, err := c.Read(b); err != nil {
			return
		}
		script += string(b)
	}
	sent, got := 0, 0
	var err error
	for step := range strings.SplitSeq(strings.TrimSpace(script), ", ") {
		name, argument, _ := strings.Cut(step, " ")
		n := forever
		if argument != "" {
			n, _ = strconv.Atoi(argument)
		}
		switch name {
		case "write":
			sent, err = writeStream(c, sent, sent+n, 256<<10)
		case "read":
			if got, err = readStream(c, got, got+n, 256<<10); err == io.EOF && argument == "" {
				err = nil
			}
		case "pull": // a piece for each byte
			for err == nil {
				if _, err = io.ReadFull(c, make([]byte, 1)); err == nil {
					sent, err = writeStream(c, sent, sent+n, n)
				}
			}
		case "patient":
			neverOverdue(c)
		case "echo":
			_, err = io.Copy(c, c)
		case "flood":
			sent, got, err = flood(c, time.Duration(n)*time.Millisecond)
		case "closewrite":
			err = c.CloseWrite()
		case "closeread":
			err = c.CloseRead()
		case "release":
			released <- struct{}{}
		case "wait":
			<-released
		case "hold":
			select {}
		case "freeze": // nor does anybody of the library read from now on
			c.mu.Lock()
		case "thaw":
			c.mu.Unlock()
		case "report":
			fmt.Println("sent", sent, "got", got)
		}
		if err != nil {
			fmt.Printf("%s: %v\n", step, err)
			return
		}
	}
}

// flood writes and reads the stream, both at once, for some time; then it ends
// its direction and reads to the end of the other.
func flood(c *Conn, d time.Duration) (sent, got int, err error) {
	var writing sync.WaitGroup
	var writeErr error
	writing.Go(func() {
		for end, more := time.Now().Add(d), true; more; more = time.Now().Before(end) {
			for _, size := range []int{1, 64, 5000, 100_000, 1 << 20} {
				if sent, writeErr = writeStream(c, sent, sent+size, size); writeErr != nil {
					return
				}
			}
		}
		writeErr = c.CloseWrite()
	})
	got, err = readStream(c, 0, forever, 128<<10)
	if err == io.EOF {
		err = nil
	}
	writing.Wait()
	return sent, got, errors.Join(err, writeErr)
}

// process is the second process.
type process struct{ *conntest.Process }

// startPeer starts a second process, which ends with the test.
func startPeer(t *testing.T) *process { return &process{conntest.StartPeer(t, "serve")} }

// perform returns a connection on which the process performs the script.
func (p *process) perform(t *testing.T, script string) *Conn {
	t.Helper()
	nc, err := engineDial(p.Address)
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	_, err = io.WriteString(nc, script+"\n")
	require.NoError(t, err)
	return engineOf(t, nc)
}

// held is perform for a peer that is never to go on. Close would wait for its kernel
// to have everything.
func (p *process) held(t *testing.T, script string) *Conn {
	t.Helper()
	c := p.perform(t, script)
	require.NoError(t, c.SetLinger(0))
	return c
}

// release lets the script that is at "wait" go on.
func (p *process) release(t *testing.T) { p.perform(t, "release").Close() }

// asksEarly has a connection ask for larger buffers as soon as a Write would gain by
// them, and not only when much has been written.
func asksEarly(c *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session.Parts().Source.Carried(1 << 30)
}
