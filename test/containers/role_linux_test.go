package containers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/sdp"
)

const (
	roleVariable     = "CONTAINERS_ROLE" // makes the test binary a container
	mountVariable    = "CONTAINERS_MOUNT"
	readOnlyVariable = "CONTAINERS_READ_ONLY"
	uidVariable      = "CONTAINERS_UID"
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
	talk *talk // that open has begun

	mu  sync.Mutex
	why map[string]bool // why connections were on TCP
}

func (r *role) do(command string, args []string) string {
	n := func(i int) int {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			panic(err)
		}
		return n
	}
	var err error
	switch command {
	case "serve": // name address
		err = r.serve(args[0], args[1])
	case "plain": // name address: without SDP
		var ln net.Listener
		if ln, err = net.Listen("tcp", args[1]); err == nil {
			go r.accept(args[0], ln)
		}
	case "sink": // address: a server that only reads
		var ln net.Listener
		if ln, err = new(sdp.ListenConfig).Listen(context.Background(), "tcp", args[0]); err == nil {
			go sink(ln)
		}
	case "stream": // address: a connection that only writes, until it has moved, or 4 GB; says where it is
		return stream(args[0])
	case "dial": // server address connections exchanges [port]: one after the other; says where they ended
		port := 0
		if len(args) > 4 {
			port = n(4)
		}
		return r.dial(args[0], args[1], n(2), n(3), port)
	case "open": // server address port: a connection for say, from that port
		if r.talk != nil {
			r.talk.Close()
		}
		r.talk, err = open(args[0], args[1], n(2))
	case "say": // exchanges: says where the connection is
		for range n(0) {
			if err := r.talk.exchange(); err != nil {
				return err.Error()
			}
		}
		r.note(r.talk)
		return r.talk.device()
	case "why": // the reasons why connections were on TCP
		r.mu.Lock()
		defer r.mu.Unlock()
		return strings.Join(slices.Sorted(maps.Keys(r.why)), " | ")
	case "relay": // address to [how]: passes on what comes, perhaps from the client's address, or address and port, or over SDP
		err = relay(args[0], args[1], strings.Join(args[2:], ""))
	case "insist": // address: dials on network sdp
		var c net.Conn
		if c, err = sdp.Dial("sdp", args[0]); err == nil {
			err = c.Close()
		}
	case "load": // server address exchanges: connections, two at a time, until it is killed; says where the first one was
		return r.load(args[0], args[1], n(2))
	case "impostor": // what how
		err = impose(args[0], args[1])
	default:
		err = fmt.Errorf("unknown command %q", command)
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func (r *role) serve(name, address string) error {
	ln, err := new(sdp.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	go r.accept(name, ln)
	return nil
}

// All messages have messageLen bytes. The first ones are the same on each connection. Later ones have a number, and the
// name of their sender, in which a mistaken identity shows.
const (
	messageLen = 24
	sameFor    = 100
)

func message(kind, name string, k int) []byte {
	if k < sameFor {
		name, k = "anyone", 0
	}
	return fmt.Appendf(nil, "%-8s%-8s%08d", kind, name, k)
}

// accept answers requests.
func (r *role) accept(name string, ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			defer r.note(c)
			client := ""
			for k := 0; ; k++ {
				request := make([]byte, messageLen)
				if _, err := io.ReadFull(c, request); err != nil {
					return
				}
				if from := strings.TrimSpace(string(request[8:16])); k == sameFor {
					client = from
				}
				if string(request) != string(message("request", client, k)) {
					io.WriteString(c, "a request of another connection")
					return
				}
				if _, err := c.Write(message("answer", name, k)); err != nil {
					return
				}
			}
		}()
	}
}

// sink reads, and closes what has another byte than the position says.
func sink(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			b := make([]byte, 1<<16)
			for at := 0; ; {
				n, err := c.Read(b)
				for _, v := range b[:n] {
					if v != byte(at>>8+at) {
						return
					}
					at++
				}
				if err != nil {
					return
				}
			}
		}()
	}
}

func stream(address string) string {
	t, err := open("", address, 0)
	if err != nil {
		return err.Error()
	}
	defer t.Close()
	b := make([]byte, 1<<16)
	for i := range b {
		b[i] = byte(i>>8 + i)
	}
	left := 1 << 16
	for ; left > 0; left-- {
		t.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := t.Write(b); err != nil {
			return err.Error()
		}
		if t.device() == "shm" {
			left = min(left, 100)
		}
	}
	return t.device()
}

// note notes why a connection is on TCP.
func (r *role) note(c net.Conn) {
	if t, ok := c.(*talk); ok {
		c = t.Conn
	}
	s, ok := c.(*sdp.Conn)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == nil {
		r.why = map[string]bool{}
	}
	if why := s.Stats().OnTCP; why != "" {
		r.why[why] = true
	}
}

// talk is a client's connection.
type talk struct {
	net.Conn
	server string
	k      int
}

// open opens a connection, from a port unless that is 0.
func open(server, address string, port int) (*talk, error) {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return errors.Join(failed, err)
	}}
	if port != 0 {
		d.LocalAddr = &net.TCPAddr{Port: port}
	}
	c, err := (&sdp.Dialer{NetDialer: &d}).Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &talk{c, server, 0}, nil
}

// exchange sends a request, and checks the answer.
func (t *talk) exchange() error {
	t.SetDeadline(time.Now().Add(30 * time.Second))
	host, _ := os.Hostname()
	if _, err := t.Write(message("request", host[:min(len(host), 3)]+strconv.Itoa(os.Getpid()), t.k)); err != nil {
		return err
	}
	b := make([]byte, messageLen)
	if _, err := io.ReadFull(t, b); err != nil {
		return err
	}
	if want := message("answer", t.server, t.k); string(b) != string(want) {
		return fmt.Errorf("got %q, want %q", b, want)
	}
	t.k++
	return nil
}

func (t *talk) device() string {
	if c, ok := t.Conn.(*sdp.Conn); ok {
		return c.Device()
	}
	return "tcp"
}

// dial opens connections one after the other, from a port and its successors unless that is 0, of so many exchanges each, or
// a few more than it takes until they have moved.
func (r *role) dial(server, address string, connections, exchanges, port int) string {
	used := map[string]int{}
	for i := range connections {
		if port != 0 && i > 0 {
			port++
		}
		t, err := open(server, address, port)
		if err != nil {
			return err.Error()
		}
		for left := exchanges; left > 0; left-- {
			if err := t.exchange(); err != nil {
				t.Close()
				return err.Error()
			}
			if t.device() == "shm" {
				left = min(left, 2*sameFor)
			}
		}
		used[t.device()]++
		r.note(t)
		t.Close()
	}
	return fmt.Sprint(used)
}

// relay passes on what comes, as a proxy does.
func relay(address, to, how string) error {
	ln, err := net.Listen("tcp", address)
	if how == "sdp" && err == nil {
		ln.Close()
		ln, err = sdp.Listen("tcp", address)
	}
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
				d := new(net.Dialer)
				dial := d.Dial
				switch how {
				case "sdp":
					dial = sdp.Dial
				case "address", "port":
					from := *c.RemoteAddr().(*net.TCPAddr)
					if how == "address" {
						from.Port = 0
					}
					d.LocalAddr, d.Control = &from, transparent
				}
				far, err := dial("tcp", to)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				go func() {
					io.Copy(far, c)
					far.(interface{ CloseWrite() error }).CloseWrite()
				}()
				io.Copy(c, far)
				far.Close()
			}()
		}
	}()
	return nil
}

// transparent lets a socket have another host's address.
func transparent(_, _ string, raw syscall.RawConn) (err error) {
	failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1) })
	return errors.Join(failed, err)
}

// load opens connections, one after the other.
func (r *role) load(server, address string, exchanges int) string {
	first := make(chan string, 2)
	for range cap(first) {
		go func() {
			first <- r.dial(server, address, 1, exchanges, 0)
			for {
				r.dial(server, address, 1, exchanges, 0)
			}
		}()
	}
	return <-first
}
