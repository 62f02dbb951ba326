package sdp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Most of what a connection promises shows between two processes only. The
// second one is this test binary again: it listens, and on each connection it
// does what the first line of it says, a script of steps with commas between.
const roleVariable = "GOSDP_TEST_ROLE"

// bePeer is the main function of the second process.
func bePeer(role string) {
	go func() { // end with the parent, however it ends
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if address, ok := strings.CutPrefix(role, "victim "); ok {
		beVictim(address)
	}
	if where, ok := strings.CutPrefix(role, "dial "); ok {
		network, address, _ := strings.Cut(where, " ")
		greet(network, address)
	}
	ln, err := engineListen()
	network, echoes := strings.CutPrefix(role, "echo ")
	if echoes {
		ln.Close()
		ln, err = patientListen(network)
	}
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
		if echoes {
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
			continue
		}
		go perform(c.(*Conn))
	}
}

// greet dials, has a greeting echoed, prints it and how it came, and exits.
func greet(network, address string) {
	d := Dialer{Config: patient}
	c, err := d.Dial(network, address)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	over := overOf(c)
	c.Write([]byte("hello"))
	b := make([]byte, 5)
	n, _ := io.ReadFull(c, b)
	b = b[:n]
	fmt.Printf("%s over %s, a %T\n", b, over, c)
	c.Close()
	os.Exit(0)
}

// released lets one script go on from its step "wait".
var released = make(chan struct{}, 1)

// perform carries out the script of one connection, and closes it at the end.
func perform(outer *Conn) {
	defer outer.Close()
	c := outer.carrier.(*conn)
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
func flood(c *conn, d time.Duration) (sent, got int, err error) {
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
type process struct {
	address string
	cmd     *exec.Cmd
	stdout  *bufio.Reader
}

// startPeer starts a second process, which ends with the test.
func startPeer(t *testing.T) *process { return startRole(t, "serve") }

func startRole(t *testing.T, role string) *process {
	t.Helper()
	p := &process{cmd: peerCommand(role)}
	_, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.stdout = bufio.NewReader(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(p.kill)
	p.address = p.report(t)
	return p
}

func peerCommand(role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	// With the race detector a process would sleep for a second before it exits.
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// kill ends the process as an operator would a stuck one, and waits for its end.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// report returns the next line that the process has printed.
func (p *process) report(t *testing.T) string {
	t.Helper()
	line, err := p.stdout.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// perform returns a connection on which the process performs the script.
func (p *process) perform(t *testing.T, script string) *conn {
	t.Helper()
	nc, err := engineDial(p.address)
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	_, err = io.WriteString(nc, script+"\n")
	require.NoError(t, err)
	return engineOf(t, nc)
}

// held is perform for a peer that is never to go on. Close would wait for its kernel
// to have everything.
func (p *process) held(t *testing.T, script string) *conn {
	t.Helper()
	c := p.perform(t, script)
	require.NoError(t, c.SetLinger(0))
	return c
}

// release lets the script that is at "wait" go on.
func (p *process) release(t *testing.T) { p.perform(t, "release").Close() }

// checkError checks that err is package net's way to say target.
func checkError(t *testing.T, err error, op string, targets ...error) {
	t.Helper()
	var operation *net.OpError
	if !assert.ErrorAs(t, err, &operation) {
		return
	}
	assert.Equal(t, op, operation.Op)
	if op != "set" { // TestErrorsAsTCPs looks at those
		assert.IsType(t, &net.TCPAddr{}, operation.Source)
	}
	assert.IsType(t, &net.TCPAddr{}, operation.Addr)
	if (op == "read" || op == "write") && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
		var call *os.SyscallError
		if assert.ErrorAs(t, err, &call, "as package net's") {
			assert.Equal(t, op, call.Syscall)
		}
	}
	is, timeout := false, false
	for _, target := range targets {
		is = is || errors.Is(err, target)
		timeout = timeout || target == os.ErrDeadlineExceeded
	}
	assert.True(t, is, "%v is none of %v", err, targets)
	assert.Equal(t, timeout, operation.Timeout())
}

// checkDeath checks that a Read has ended because the peer's process has. Over iwarp that is a
// reset if a message or a transfer was cut, or if something had arrived that the process had not
// taken from its kernel, and otherwise an end.
func checkDeath(t *testing.T, err error) {
	t.Helper()
	if err != io.EOF {
		checkError(t, err, "read", syscall.ECONNRESET)
	}
}

// asksEarly has a connection ask for larger buffers as soon as a Write would gain by
// them, and not only when much has been written.
func asksEarly(c *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session.Parts().Source.Carried(1 << 30)
}
