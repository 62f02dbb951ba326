package sdp

import "testing"

// BenchmarkDial dials, exchanges a byte and closes, with both ends in this process.
func BenchmarkDial(b *testing.B) {
	cfg := overEngine(nil)
	ln, err := engineListen()
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
		c, err := d.Dial("sdp", ln.Addr().String())
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
