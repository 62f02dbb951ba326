package sdp

import "testing"

// BenchmarkDial dials, exchanges a byte and closes, with both ends in this process.
func BenchmarkDial(b *testing.B) {
	cfg := overEngine(nil)
	ln, err := (&ListenConfig{Config: cfg}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			var x [1]byte
			c.Read(x[:])
			c.Write(x[:])
			c.Read(x[:])
			c.Close()
		}
	}()
	b.ReportAllocs()
	d := Dialer{Config: cfg}
	for b.Loop() {
		c, err := d.Dial("tcp", ln.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		var x [1]byte
		c.Write(x[:])
		c.Read(x[:])
		c.Close()
	}
	ln.Close()
}
