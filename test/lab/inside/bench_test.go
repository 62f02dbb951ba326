//go:build linux

package inside

import (
	"io"
	"testing"
)

// BenchmarkPingPong is a 64-byte round trip.
func BenchmarkPingPong(b *testing.B) {
	client, server := pair(b, onVerbs)
	echoed := make(chan error, 1)
	go func() {
		buf := make([]byte, 64)
		for {
			if _, err := io.ReadFull(server, buf); err != nil {
				echoed <- nil
				return
			}
			if _, err := server.Write(buf); err != nil {
				echoed <- err
				return
			}
		}
	}()
	buf := make([]byte, 64)
	for b.Loop() {
		if _, err := client.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, buf); err != nil {
			b.Fatal(err)
		}
	}
	client.Close()
	if err := <-echoed; err != nil {
		b.Error(err)
	}
}

func BenchmarkStream64KB(b *testing.B) { benchmarkStream(b, 64<<10) }
func BenchmarkStream1MB(b *testing.B)  { benchmarkStream(b, 1<<20) }

func benchmarkStream(b *testing.B, size int) {
	client, server := pair(b, onVerbs)
	done := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{server}, make([]byte, size))
		done <- err
	}()
	buf := make([]byte, size)
	b.SetBytes(int64(size))
	for b.Loop() {
		if _, err := client.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	client.CloseWrite()
	if err := <-done; err != nil {
		b.Error(err)
	}
}
