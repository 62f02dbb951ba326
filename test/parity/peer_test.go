package parity

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// peer is another process that has the other end of a connection.
type peer struct {
	address string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stdout  *bufio.Reader
}

// startPeer starts a peer in a role of this binary.
func startPeer(role string) *peer {
	p := &peer{cmd: command(role)}
	p.cmd.Stderr = os.Stderr
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	check(err)
	out, err := p.cmd.StdoutPipe()
	check(err)
	p.stdout = bufio.NewReader(out)
	check(p.cmd.Start())
	return p
}

// peer starts a process that listens on the stack, dials it, and returns both when the process has
// accepted the connection.
func (r *run) peer() (*peer, conn) {
	p := startPeer("peer " + r.name)
	p.address = p.line()
	c, err := r.Dial(p.address)
	check(err)
	if answer := p.do("write 0"); answer != "nil" {
		panic(answer)
	}
	return p, c
}

// line returns the next line that the peer prints.
func (p *peer) line() string {
	text, err := p.stdout.ReadString('\n')
	check(err)
	return strings.TrimSpace(text)
}

// do sends the peer a command and returns its answer.
func (p *peer) do(command string) string {
	p.tell(command)
	return p.line()
}

// tell sends the peer a command that has no answer.
func (p *peer) tell(command string) {
	_, err := fmt.Fprintln(p.stdin, command)
	check(err)
}

// exit makes the peer exit without Close and waits until it has ended.
func (p *peer) exit() {
	p.tell("exit")
	p.cmd.Wait()
}

// kill kills the peer and waits until it has ended.
func (p *peer) kill() {
	check(p.cmd.Process.Kill())
	p.cmd.Wait()
}

// peerMain accepts one connection and executes commands from its standard input:
//
//	write N  writes the first N bytes of the stream
//	read N   reads N bytes
//	exit     exits without Close
func peerMain(arguments []string) {
	r := run{stack: stackNamed(arguments[0])}
	ln, err := r.Listen()
	check(err)
	fmt.Println(ln.Addr())
	commands := make(chan string)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			commands <- lines.Text()
		}
		os.Exit(1)
	}()
	c := r.accept(ln)
	for command := range commands {
		name, argument, _ := strings.Cut(command, " ")
		n, _ := strconv.Atoi(argument)
		switch name {
		case "write":
			_, err = c.Write(bytesOf(n))
		case "read":
			_, err = readTo(c, 0, n)
		case "exit":
			os.Exit(0)
		}
		fmt.Println(describe(err))
	}
}

// closerMain dials, makes the given number of Writes of the given size, closes, and exits at
// once.
func closerMain(arguments []string) {
	endWithStdin()
	address := arguments[1]
	writes, _ := strconv.Atoi(arguments[2])
	size, _ := strconv.Atoi(arguments[3])
	c, err := stackNamed(arguments[0]).Dial(address)
	check(err)
	b := make([]byte, size)
	for i := range writes {
		_, err := c.Write(pattern(b, i*size))
		check(err)
	}
	fmt.Println(timed(c.Close))
	os.Exit(0)
}
