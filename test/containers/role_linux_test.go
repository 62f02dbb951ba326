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

	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma/shm"
	"github.com/gosdp/gosdp/sdp"
)

const (
	roleVariable     = "CONTAINERS_ROLE" // makes the test binary a container
	mountVariable    = "CONTAINERS_MOUNT"
	readOnlyVariable = "CONTAINERS_READ_ONLY"
	uidVariable      = "CONTAINERS_UID"
	peerVariable     = "CONTAINERS_PEER_UID"
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

	ln      *sdp.Listener
	echoing sync.WaitGroup // ends when it does not accept
	below   net.Listener   // of the plain server
	plainly sync.WaitGroup // ends when that does not accept

	mu   sync.Mutex
	seen bytes.Buffer // by a plain server, or an impostor
	came int          // connections to it

	shared chan struct{} // one for each connection of the load over shm
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
	uids := []int(nil)
	if uid, err := strconv.Atoi(os.Getenv(peerVariable)); err == nil {
		uids = []int{uid}
	}
	const limit = time.Minute // a busy machine does not reach it
	return &sdp.Config{
		PeerUIDs: uids, ReplyTimeout: limit, HandshakeTimeout: limit, StepUpTimeout: limit,
		Logger: slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

func (r *role) do(command string, args []string) string {
	var err error
	switch command {
	case "listen": // network address: echoes
		err = r.listen(args[0], args[1])
	case "refrain": // from accepting there
		err = r.ln.SetDeadline(time.Unix(1, 0))
	case "hold": // address: a connection of net, as long as the container lives
		_, err = net.Dial("tcp", args[0])
	case "unlisten": // ends the last one
		err = r.ln.Close()
	case "greet": // address: a server of SDP that speaks first
		err = r.greet(args[0])
	case "greeted": // address times: dials, and says nothing
		err = r.greeted(args)
	case "plain": // address: a server that knows nothing of SDP, and echoes
		err = r.plain(args[0])
	case "hand-out": // the listener's socket to such a server, and accepts no more on it
		err = r.handOut()
	case "accept": // on the listener again
		err = r.accept()
	case "unplain": // ends that
		err = r.unplain()
	case "seen": // what came to that
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Sprintf("%d %q", r.came, r.seen.String())
	case "dial": // network address times [what it forgets before each]
		return r.dial(args)
	case "forget": // what: what is kept for the next dial
		forget(args[0])
	case "nets": // address times: connections of net, not of SDP
		err = nets(args)
	case "log":
		return r.log.String()
	case "relay": // address to
		err = relay(args[0], args[1])
	case "load": // address: dials and writes until it is killed
		r.load(args[0])
	case "loaded": // n: waits until so many of the load's connections have gone over shm
		n, _ := strconv.Atoi(args[0])
		late := time.After(time.Minute)
		for range n {
			select {
			case <-r.shared:
			case <-late:
				s := r.log.String()
				return "they do not: " + s[max(0, len(s)-3000):]
			}
		}
	case "impostor": // how
		err = r.impose(args)
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
	r.ln = ln.(*sdp.Listener)
	r.echoing.Go(func() { echo(ln) })
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

func (r *role) greet(address string) error {
	lc := sdp.ListenConfig{Config: r.config()}
	ln, err := lc.Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	return nil
}

// greeted dials a server that speaks first. If that waited for the time limit of the handshake,
// the greeting would be late.
func (r *role) greeted(args []string) error {
	times, _ := strconv.Atoi(args[1])
	d := sdp.Dialer{Config: r.config()}
	for range times {
		c, err := d.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		c.SetDeadline(time.Now().Add(30 * time.Second))
		b, err := io.ReadAll(c)
		c.Close()
		if err != nil || string(b) != "hello" {
			return fmt.Errorf("%q %w", b, err)
		}
	}
	return nil
}

// plain echoes, and keeps what comes.
func (r *role) plain(address string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	r.servePlain(ln)
	return nil
}

// servePlain has a server that knows nothing of SDP serve the listener.
func (r *role) servePlain(ln net.Listener) {
	r.below = ln
	r.plainly.Go(func() {
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
	})
}

// unplain ends the plain server, and waits until it accepts no more.
func (r *role) unplain() error {
	err := r.below.Close()
	r.plainly.Wait()
	return err
}

// handOut passes a copy of the listener's socket to a server that knows nothing of SDP.
func (r *role) handOut() error {
	if err := r.ln.SetDeadline(time.Unix(1, 0)); err != nil { // echo ends
		return err
	}
	r.echoing.Wait()
	f, err := r.ln.File()
	if err != nil {
		return err
	}
	defer f.Close()
	ln, err := net.FileListener(f)
	if err != nil {
		return err
	}
	r.servePlain(ln)
	return nil
}

// accept ends what handOut has begun.
func (r *role) accept() error {
	if err := r.ln.SetDeadline(time.Time{}); err != nil {
		return err
	}
	err := r.unplain()
	r.echoing.Go(func() { echo(r.ln) })
	return err
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
		forget(strings.Join(args[3:], ""))
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

// forget closes the channels, the sockets of claims, or all, that are kept for the next dial.
func forget(what string) {
	if what == "channels" || what == "all" {
		shm.CloseIdle()
	}
	if what == "claims" || what == "all" {
		shmdir.CloseIdle()
	}
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

// relay passes on what comes, as a proxy does.
func relay(address, to string) error {
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
			go func() {
				defer c.Close()
				far, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				go func() {
					io.Copy(far, c)
					far.(*net.TCPConn).CloseWrite()
				}()
				io.Copy(c, far)
			}()
		}
	}()
	return nil
}

// load opens connections and writes on them, eight at a time.
func (r *role) load(address string) {
	r.shared = make(chan struct{}, 64)
	for range 8 {
		go func() {
			for {
				c, err := (&sdp.Dialer{Config: r.config()}).Dial("sdp", address)
				if err != nil {
					continue
				}
				for range 4 {
					if exchange(c, 10_000) != nil {
						break
					}
				}
				c.Close()
				if _, shm := c.(*sdp.Conn); shm {
					select {
					case r.shared <- struct{}{}:
					default:
					}
				}
			}
		}()
	}
}
