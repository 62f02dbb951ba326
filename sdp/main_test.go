package sdp

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/gosdp/gosdp/test/conntest"
)

// TestMain lets the test binary be the peer process too.
func TestMain(m *testing.M) { conntest.Main(m, bePeer) }

// bePeer is the main function of the second process.
func bePeer(role string) {
	if address, ok := strings.CutPrefix(role, "victim "); ok {
		beVictim(address)
	}
	if where, ok := strings.CutPrefix(role, "dial "); ok {
		network, address, _ := strings.Cut(where, " ")
		greet(network, address)
	}
	network, _ := strings.CutPrefix(role, "echo ")
	ln, err := patientListen(network)
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
		go func() {
			io.Copy(c, c)
			c.Close()
		}()
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
