package rdmatest

import (
	"errors"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

// Benchmark measures a device: latency, the rate of a stream, and RDMA Read. pair is like that of
// Run.
func Benchmark(b *testing.B, pair func(b *testing.B) (x, y rdma.QueuePair)) {
	for _, m := range []struct {
		name string
		run  func(b *testing.B, x, y rdma.QueuePair)
	}{
		{"PingPong64B", benchmarkPingPong},
		{"Stream64KB", benchmarkStream},
		{"Read1MB", benchmarkRead},
	} {
		b.Run(m.name, func(b *testing.B) {
			x, y := pair(b)
			for _, q := range []rdma.QueuePair{x, y} {
				q.ProvideReceive(benchmarkWindow, min(q.Limits().MaxMessage, segment))
			}
			b.ReportAllocs()
			m.run(b, x, y)
			for _, q := range []rdma.QueuePair{x, y} {
				if err := q.Close(); err != nil {
					b.Error(err)
				}
			}
		})
	}
}

// benchmarkWindow is the number of receive buffers at each end.
const benchmarkWindow = 256

// serve calls Wait on y and passes each message to answer, until stop is called.
func serve(b *testing.B, y rdma.QueuePair, answer func(rdma.Completion)) (stop func()) {
	stopping := make(chan struct{})
	served := background(func() {
		var wcs [16]rdma.Completion
		for {
			n, err := y.Wait(wcs[:])
			if err != nil {
				b.Error(err)
				return
			}
			for _, c := range wcs[:n] {
				answer(c)
			}
			select {
			case <-stopping:
				return
			default:
			}
		}
	})
	return func() {
		close(stopping)
		y.Wake()
		<-served
	}
}

// postAll posts until everything is accepted, and makes the device carry it.
func postAll(b *testing.B, q rdma.QueuePair, wrs []rdma.SendWR) {
	for len(wrs) > 0 {
		n, err := q.PostSend(wrs)
		if err != nil && !errors.Is(err, rdma.ErrNoRoom) {
			b.Error(err)
			return
		}
		if wrs = wrs[n:]; len(wrs) == 0 {
			break
		}
		if err := q.WaitRoom(); err != nil {
			b.Error(err)
			return
		}
	}
	if q.Busy() {
		q.Flush()
	}
}

// awaitOne calls Wait until something has completed.
func awaitOne(b *testing.B, q rdma.QueuePair, wcs []rdma.Completion) rdma.Completion {
	for {
		n, err := q.Wait(wcs[:1])
		if err != nil {
			b.Fatal(err)
		}
		if n == 1 {
			return wcs[0]
		}
	}
}

func benchmarkPingPong(b *testing.B, x, y rdma.QueuePair) {
	pong := []rdma.SendWR{{Header: make([]byte, 16), Payload: make([]byte, 48)}}
	stop := serve(b, y, func(c rdma.Completion) {
		c.Buffer.Release()
		postAll(b, y, pong)
	})
	defer stop()
	ping := []rdma.SendWR{{Header: make([]byte, 16), Payload: make([]byte, 48)}}
	wcs := make([]rdma.Completion, 1)
	for b.Loop() {
		postAll(b, x, ping)
		awaitOne(b, x, wcs).Buffer.Release()
	}
}

// benchmarkStream keeps x within y's buffers by a credit for each quarter of them.
func benchmarkStream(b *testing.B, x, y rdma.QueuePair) {
	const quarter = benchmarkWindow / 4
	credit := make(chan struct{}, 4)
	for range cap(credit) {
		credit <- struct{}{}
	}
	received := 0
	stop := serve(b, y, func(c rdma.Completion) {
		c.Buffer.Release()
		if received++; received%quarter == 0 {
			credit <- struct{}{}
		}
	})
	size := min(x.Limits().MaxMessage, segment)
	wrs := make([]rdma.SendWR, 1, max(1, x.Limits().SendBatch))
	wrs[0] = rdma.SendWR{Header: make([]byte, 16), Payload: make([]byte, size-16)}
	for len(wrs) < min(cap(wrs), quarter) {
		wrs = append(wrs, wrs[0])
	}
	b.SetBytes(int64(size))
	sent := 0
	for b.Loop() {
		if sent%quarter == 0 {
			<-credit
		}
		sent++
		if batch := (sent-1)%quarter%len(wrs) + 1; batch == len(wrs) || sent%quarter == 0 {
			postAll(b, x, wrs[:batch])
		}
	}
	stop()
}

func benchmarkRead(b *testing.B, x, y rdma.QueuePair) {
	const size = 1 << 20
	source := make([]byte, size)
	region, err := y.Register(source, rdma.RemoteRead)
	if err != nil {
		b.Fatal(err)
	}
	stop := serve(b, y, func(rdma.Completion) {})
	defer stop()
	local := make([]byte, size)
	wcs := make([]rdma.Completion, 1)
	b.SetBytes(size)
	for b.Loop() {
		if err := x.PostRead(rdma.ReadWR{Local: local, STag: region.STag, VA: region.VA}); err != nil {
			b.Fatal(err)
		}
		if x.Busy() {
			x.Flush()
		}
		awaitOne(b, x, wcs)
	}
}
