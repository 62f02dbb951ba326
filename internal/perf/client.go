package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/wire"
)

// TCP is the name of plain TCP in Ways.
const TCP = "tcp"

// Ways returns the devices, the best one first, and TCP.
func Ways() []string { return append(devices(), TCP) }

// devices returns the devices of package sdp.
func devices() []string {
	all := []string{"shm"}
	for _, known := range wire.KnownDevices {
		all = append(all, known.Name)
	}
	return all
}

// Dial connects to a server over the device or TCP that way names.
func Dial(ctx context.Context, way, address string) (net.Conn, error) {
	if way == TCP {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	d := sdp.Dialer{Config: &sdp.Config{Devices: []string{way}, ReplyTimeout: 3 * time.Second}}
	c, err := d.DialContext(ctx, "sdp", address)
	if err != nil {
		return nil, reasonOf(err, way)
	}
	return c, nil
}

// reasonOf returns the part of an error of Dial that is about one device.
func reasonOf(err error, way string) error {
	_, reasons, ok := strings.Cut(err.Error(), "no RDMA device can be used: ")
	if !ok {
		return err
	}
	for _, known := range devices() { // a reason may itself contain "; "
		reasons = strings.ReplaceAll(reasons, "; "+known+": ", "\n"+known+": ")
	}
	for _, reason := range strings.Split(reasons, "\n") {
		if why, ok := strings.CutPrefix(reason, way+": "); ok {
			return errors.New(why)
		}
	}
	return err
}

// begin connects and sends the request.
func begin(ctx context.Context, way, address string, kind byte, size int) (net.Conn, error) {
	c, err := Dial(ctx, way, address)
	if err != nil {
		return nil, err
	}
	// The end of ctx, or its being cancelled, ends what is being read or written.
	context.AfterFunc(ctx, func() { c.SetDeadline(time.Now()) })
	if _, err = c.Write(appendRequest(nil, kind, size)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Latency is the distribution of the times of round trips.
type Latency struct {
	Count int           `json:"count"`
	Min   time.Duration `json:"min_ns"`
	Mean  time.Duration `json:"mean_ns"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
}

// latencyOf sorts the times.
func latencyOf(times []time.Duration) Latency {
	if len(times) == 0 {
		return Latency{}
	}
	slices.Sort(times)
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	at := func(part float64) time.Duration { return times[min(len(times)-1, int(part*float64(len(times))))] }
	return Latency{len(times), times[0], sum / time.Duration(len(times)), at(0.5), at(0.99), times[len(times)-1]}
}

const (
	// maxTimes limits how many times are kept.
	maxTimes = 1 << 20
	// warmUp are round trips that are not counted.
	warmUp = 20
)

// RoundTrips repeatedly sends a block of size bytes and waits until it has been returned: count
// times, or for the time d if count is 0, with a pause in between. It calls told after each round
// trip with its number and its time. If ctx is cancelled, it returns what was measured until then; and
// so it does with an error.
func RoundTrips(ctx context.Context, way, address string, size, count int, d, pause time.Duration, told func(n int, took time.Duration)) (Latency, error) {
	c, err := begin(ctx, way, address, Echo, size)
	if err != nil {
		return Latency{}, err
	}
	defer c.Close()
	b := make([]byte, size)
	fill(b)
	trip := func() (time.Duration, error) {
		start := time.Now()
		if _, err := c.Write(b); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return 0, err
		}
		return time.Since(start), nil
	}
	for range warmUp {
		if _, err := trip(); err != nil {
			return Latency{}, err
		}
	}
	var times []time.Duration
	end := time.Now().Add(d)
	for len(times) < maxTimes {
		if done := len(times) == count; count > 0 && done || count == 0 && time.Now().After(end) {
			break
		}
		took, err := trip()
		if err != nil {
			if len(times) > 0 && errors.Is(ctx.Err(), context.Canceled) {
				break
			}
			return latencyOf(times), err
		}
		times = append(times, took)
		told(len(times), took)
		if pause > 0 && len(times) != count && !sleep(ctx, pause) {
			break
		}
	}
	return latencyOf(times), nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// progressTime is how often Stream reports its rate.
const progressTime = 100 * time.Millisecond

// Stream sends bytes to the server (Upload) or receives some (Download) for the time d, in
// blocks of size bytes, and returns how many per second the receiving end got. It calls told every
// progressTime with the present rate.
func Stream(ctx context.Context, way, address string, kind byte, size int, d time.Duration, told func(rate float64)) (rate float64, err error) {
	c, err := begin(ctx, way, address, kind, size)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	b := make([]byte, size)
	fill(b)
	move := c.Read
	if kind == Upload {
		move = c.Write
	}
	start := time.Now()
	bytes, lastBytes, last := int64(0), int64(0), start
	for {
		n, err := move(b)
		bytes += int64(n)
		if err != nil {
			return 0, err
		}
		now := time.Now()
		if since := now.Sub(last); since >= progressTime {
			told(float64(bytes-lastBytes) / since.Seconds())
			last, lastBytes = now, bytes
		}
		if now.Sub(start) >= d || ctx.Err() != nil {
			break
		}
	}
	if kind == Upload {
		// Bytes in flight count, and so does the time until they arrive.
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			return 0, err
		}
		var got [8]byte
		if _, err := io.ReadFull(c, got[:]); err != nil {
			return 0, err
		}
		if n := int64(binary.BigEndian.Uint64(got[:])); n != bytes {
			return 0, fmt.Errorf("server received %d of %d bytes", n, bytes)
		}
	}
	return float64(bytes) / time.Since(start).Seconds(), nil
}
