package dissect

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// Capture records the packets of a TCP port on the loopback interface.
//
// dumpcap does not report when it has begun to capture, or when it has written the last
// packet. So the Capture also captures datagrams that it sends to itself: dumpcap is ready
// when the first has been captured, and has written all packets when it has written a
// datagram that was sent after them.
type Capture struct {
	t        testing.TB
	port     int
	dumpcap  *exec.Cmd
	stderr   bytes.Buffer // dumpcap's standard error; complete when ended is closed
	marker   *net.UDPConn // sends to itself
	token    []byte       // the start of each marker
	seen     chan byte    // the last byte of each marker that was captured
	ended    chan struct{}
	captured []byte // a pcap file without the markers; complete when ended is closed
}

const (
	ready    = 0
	complete = 1
	// patience ends a capture that hangs.
	patience = 2 * time.Minute
)

// Start captures until Frames or Packets is called, or the test ends. If a program or the
// permission to capture is missing, it skips the test, or fails it if REQUIRE_DISSECT is
// set.
func Start(t testing.TB, port int) *Capture {
	t.Helper()
	if runtime.GOOS != "linux" {
		missing(t, "Linux's loopback interface")
	}
	for _, program := range []string{"dumpcap", "tshark"} {
		if _, err := exec.LookPath(program); err != nil {
			missing(t, program+" (Debian: apt-get install tshark)")
		}
	}
	marker, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { marker.Close() })
	c := &Capture{
		t:      t,
		port:   port,
		marker: marker,
		token:  make([]byte, 16),
		seen:   make(chan byte, 1),
		ended:  make(chan struct{}),
	}
	rand.Read(c.token)
	filter := fmt.Sprintf("tcp port %d or udp port %d", port, marker.LocalAddr().(*net.UDPAddr).Port)
	c.dumpcap = exec.Command("dumpcap", "-q", "-i", "lo", "-B", "64", "-P", "-w", "-", "-f", filter)
	c.dumpcap.Stderr = &c.stderr
	out, err := c.dumpcap.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.dumpcap.Start(); err != nil {
		t.Fatal(err)
	}
	go c.record(out)
	t.Cleanup(c.stop)
	if !c.await(ready) {
		c.stop()
		missing(t, fmt.Sprintf("permission to capture on lo: dumpcap printed %q", c.stderr.String()))
	}
	return c
}

// missing skips the test because what is missing, or fails it if REQUIRE_DISSECT is set.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("REQUIRE_DISSECT") != "" {
		t.Fatalf("missing: %s", what)
	}
	t.Skipf("missing: %s", what)
}

// record reads dumpcap's pcap stream until it ends.
func (c *Capture) record(out io.Reader) {
	const fileHeader, packetHeader, lengthAt = 24, 16, 8
	defer close(c.ended)
	defer c.dumpcap.Wait()
	file := make([]byte, fileHeader)
	if _, err := io.ReadFull(out, file); err != nil {
		return
	}
	for {
		packet := make([]byte, packetHeader)
		if _, err := io.ReadFull(out, packet); err != nil {
			break
		}
		n := binary.NativeEndian.Uint32(packet[lengthAt:])
		packet = append(packet, make([]byte, n)...)
		if _, err := io.ReadFull(out, packet[packetHeader:]); err != nil {
			break
		}
		if i := bytes.Index(packet, c.token); i >= 0 {
			select {
			case c.seen <- packet[i+len(c.token)]:
			default: // await needs only one
			}
			continue
		}
		file = append(file, packet...)
	}
	c.captured = file
}

// await sends markers until one of this kind is captured. It returns false if dumpcap ends
// first, or if that takes too long.
func (c *Capture) await(kind byte) bool {
	late := time.After(patience)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		if _, err := c.marker.WriteTo(append(c.token[:len(c.token):len(c.token)], kind), c.marker.LocalAddr()); err != nil {
			c.t.Fatal(err)
		}
		for waiting := true; waiting; {
			select {
			case got := <-c.seen:
				if got == kind {
					return true
				}
			case <-again.C:
				waiting = false
			case <-c.ended:
				return false
			case <-late:
				return false
			}
		}
	}
}

// stop ends dumpcap and waits until its output has been read.
func (c *Capture) stop() {
	c.dumpcap.Process.Signal(os.Interrupt)
	<-c.ended
}

// Frames ends the capture and returns the MPA frames that tshark found in it. Call it after
// everything has been sent.
func (c *Capture) Frames() []Frame {
	c.t.Helper()
	frames, err := dissect(c.finish(), c.port)
	if err != nil {
		c.t.Fatalf("%v; dumpcap printed %q", err, c.stderr.String())
	}
	return frames
}

// Packets ends the capture and returns its TCP packets, as tshark describes them.
func (c *Capture) Packets() []Packet {
	c.t.Helper()
	packets, err := packets(c.finish(), c.port)
	if err != nil {
		c.t.Fatalf("%v; dumpcap printed %q", err, c.stderr.String())
	}
	return packets
}

// finish ends the capture and returns the name of a pcap file. Call it after everything has
// been sent.
func (c *Capture) finish() string {
	c.t.Helper()
	if !c.await(complete) {
		c.stop()
		c.t.Fatalf("the capture did not end: dumpcap printed %q", c.stderr.String())
	}
	c.stop()
	file := filepath.Join(c.t.TempDir(), "captured.pcap")
	if err := os.WriteFile(file, c.captured, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return file
}
