package containers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gosdp/gosdp/sdp"
)

const (
	roleVariable = "CONTAINERS_ROLE" // makes the test binary a container
	uidVariable  = "CONTAINERS_UID"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		beContainer()
		return
	}
	goleak.VerifyTestMain(m)
}

// beContainer carries out the commands that it reads.
func beContainer() {
	if err := enter(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	var r role
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		fmt.Println(r.do(words[0], words[1:]))
	}
}

// role is what a container has at hand.
type role struct {
	log log // of the library

	mu   sync.Mutex
	seen bytes.Buffer // by the plain server
	came int          // connections to it
}

// log keeps the reasons that the library gives.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ReplaceAll(l.text.String(), "\n", " | ")
}

func (r *role) config() *sdp.Config {
	const limit = time.Minute // a busy machine does not reach it
	return &sdp.Config{
		ReplyTimeout: limit, HandshakeTimeout: limit, StepUpTimeout: limit,
		Logger: slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

func (r *role) do(command string, args []string) string {
	var err error
	switch command {
	case "listen": // network address: echoes
		err = r.listen(args[0], args[1])
	case "plain": // address: a server that knows nothing of SDP, and echoes
		err = r.plain(args[0])
	case "seen": // what came to that
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Sprintf("%d %q", r.came, r.seen.String())
	case "dial": // network address times
		return r.dial(args)
	case "nets": // address times: connections of net, not of SDP
		err = nets(args)
	case "log":
		return r.log.String()
	default:
		err = fmt.Errorf("unknown command %q", command)
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func (r *role) listen(network, address string) error {
	lc := sdp.ListenConfig{Config: r.config()}
	ln, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		return err
	}
	go echo(ln)
	return nil
}

func echo(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			io.Copy(c, c)
		}()
	}
}

// plain echoes, and keeps what comes.
func (r *role) plain(address string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.came++
			r.mu.Unlock()
			go func() {
				defer c.Close()
				io.Copy(io.MultiWriter(c, r), c)
			}()
		}
	}()
	return nil
}

// Write keeps what came.
func (r *role) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen.Write(b)
}

// dial opens connections one after the other, sends something on each, and says what they
// went over.
func (r *role) dial(args []string) string {
	times, _ := strconv.Atoi(args[2])
	d := sdp.Dialer{Config: r.config()}
	used := map[string]int{}
	for range times {
		c, err := d.Dial(args[0], args[1])
		if err != nil {
			return err.Error()
		}
		device := "tcp"
		if c, ok := c.(*sdp.Conn); ok {
			device = c.Device()
		}
		used[device]++
		err = exchange(c, 100)
		c.Close()
		if err != nil {
			return err.Error()
		}
	}
	return fmt.Sprint(used)
}

// nets is dial for connections of package net.
func nets(args []string) error {
	times, _ := strconv.Atoi(args[1])
	for range times {
		c, err := net.Dial("tcp", args[0])
		if err == nil {
			err = exchange(c, 100)
			c.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// exchange sends n bytes, which are to come back.
func exchange(c net.Conn, n int) error {
	c.SetDeadline(time.Now().Add(30 * time.Second))
	b := bytes.Repeat([]byte("secret"), n/6+1)
	if _, err := c.Write(b); err != nil {
		return err
	}
	got := make([]byte, len(b))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(b, got) {
		return fmt.Errorf("got %q", got)
	}
	return nil
}
