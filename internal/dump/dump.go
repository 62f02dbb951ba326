// Package dump writes what connections carry as a pcapng file, with headers of IP and TCP that
// it makes up, so that Wireshark dissects the streams as if the kernel had sent them.
//
// A connection passes its bytes to a [Stream], which copies them to a queue of bounded size.
// The goroutine of the [Dump] makes packets of them and writes these. If it cannot keep up,
// packets are left out. Their sequence numbers are missing then, and the next packet and the
// end of the file say how many.
package dump

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// maxQueued bounds the bytes that wait to be written.
	maxQueued = 8 << 20
	// perPacket is what a packet counts in addition to its bytes.
	perPacket = 256
	// maxWait bounds how long a Write or a Read waits for room in the queue. If it was in
	// vain, none waits again until something is written.
	maxWait = 100 * time.Millisecond
	// chunk is how much is written to the file at a time.
	chunk = 256 << 10
	// trailer has room for the block at the end of a file.
	trailer = 512
)

// The reasons why a dump ends.
const (
	endSize    = "the size limit was reached"
	endCount   = "the limit of packets was reached"
	endTime    = "the time limit was reached"
	endStopped = "it was stopped"
)

// A Dump is being written. Its methods are safe for concurrent use.
type Dump struct {
	options Options
	w       io.Writer
	comment string
	maxWait time.Duration
	stop    chan struct{}
	once    sync.Once
	wake    chan struct{} // has room for one
	ended   chan struct{}
	err     error // why it could not be written, after ended

	mu     sync.Mutex
	queue  []packet
	queued int           // bytes of it
	lost   uint64        // packets since the last one in the queue
	all    uint64        // packets that were lost
	over   bool          // nothing is added to the queue any more
	stuck  bool          // a wait for room was in vain
	room   chan struct{} // closed when something was written, or over
}

// Start writes a dump to w until the options or Stop end it. It then calls done, from its own
// goroutine. The comment says whose dump it is.
func Start(w io.Writer, o Options, comment string, done func()) *Dump {
	d := &Dump{
		options: o, w: w, comment: comment, maxWait: maxWait,
		stop: make(chan struct{}), wake: make(chan struct{}, 1), ended: make(chan struct{}),
		room: make(chan struct{}),
	}
	go func() {
		defer close(d.ended)
		d.err = d.write()
		d.mu.Lock()
		d.over, d.queue = true, nil
		close(d.room)
		d.mu.Unlock()
		done()
	}()
	return d
}

// Options returns the dump's options.
func (d *Dump) Options() Options { return d.options }

// Stop ends the dump, after what was passed to it so far, and returns when it has ended, with the
// error that it met.
func (d *Dump) Stop() error {
	d.once.Do(func() { close(d.stop) })
	<-d.ended
	return d.err
}

// Ended is closed when the dump has ended.
func (d *Dump) Ended() <-chan struct{} { return d.ended }

// waitLocked waits until the queue has room for n bytes of data, or until a time, which it sets
// when it first waits: a call of Sent or Received waits for d.maxWait, however many packets it has.
// It releases mu in between.
func (d *Dump) waitLocked(n int, until *time.Time) {
	var late <-chan time.Time
	for d.queued+perPacket+n > maxQueued && !d.over && !d.stuck {
		if late == nil {
			if until.IsZero() {
				*until = time.Now().Add(d.maxWait)
			}
			timer := time.NewTimer(time.Until(*until))
			defer timer.Stop()
			late = timer.C
		}
		room := d.room
		d.mu.Unlock()
		vain := false
		select {
		case <-room:
		case <-late:
			vain = true
		}
		d.mu.Lock()
		d.stuck = d.stuck || vain
	}
}

// written makes room for what waits.
func (d *Dump) written(bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queued -= bytes
	d.stuck = false
	close(d.room)
	d.room = make(chan struct{})
}

// addLocked adds a packet to the queue, or leaves it out and returns false if the queue is full.
func (d *Dump) addLocked(p packet, data []byte) bool {
	if d.over {
		return false
	}
	size := p.size(data)
	if d.queued+size > maxQueued {
		d.lost++
		d.all++
		return false
	}
	p.data = append([]byte(nil), data...)
	p.at = time.Now()
	p.lost, d.lost = d.lost, 0
	d.queued += size
	d.queue = append(d.queue, p)
	select {
	case d.wake <- struct{}{}:
	default:
	}
	return true
}

// write writes the file.
func (d *Dump) write() error {
	var timeout <-chan time.Time
	if d.options.For > 0 {
		timer := time.NewTimer(d.options.For)
		defer timer.Stop()
		timeout = timer.C
	}
	f := file{options: d.options, w: d.w}
	if err := f.put(appendHeader(nil, d.comment)); err != nil {
		return err
	}
	for end := ""; end == ""; {
		select {
		case <-d.wake:
		case <-timeout:
			end = endTime
		case <-d.stop:
			end = endStopped
		}
		d.mu.Lock()
		batch := d.queue
		d.queue = nil
		d.mu.Unlock()
		// The bytes count until they are written, so that slow writing bounds the memory.
		reached, err := f.packets(batch, d.written)
		if err != nil {
			return err
		}
		if reached != "" {
			end = reached
		}
		d.mu.Lock()
		d.over = end != ""
		lost := d.all
		d.mu.Unlock()
		if end != "" {
			comment := fmt.Sprintf("The dump ended because %s. %d packets were left out because they could not be written fast enough.", end, lost)
			return f.put(appendEnd(nil, time.Now().UnixNano(), uint64(f.count), lost, comment))
		}
	}
	return nil
}

// A file is what has been written.
type file struct {
	options Options
	w       io.Writer
	size    int64
	count   int64
	buf     []byte
}

// packets writes packets, until a limit is reached, which it names. It calls written with the
// bytes of the queue that it has written.
func (f *file) packets(batch []packet, written func(bytes int)) (reached string, err error) {
	f.buf = f.buf[:0]
	bytes := 0
	for i := range batch {
		before := len(f.buf)
		f.buf = appendPacket(f.buf, &batch[i])
		if f.size+int64(len(f.buf))+trailer > f.options.Size {
			f.buf = f.buf[:before]
			return endSize, f.put(f.buf)
		}
		bytes += batch[i].size(batch[i].data)
		f.count++
		if f.count == f.options.Count {
			return endCount, f.put(f.buf)
		}
		if len(f.buf) < chunk && i < len(batch)-1 {
			continue
		}
		if err := f.put(f.buf); err != nil {
			return "", err
		}
		written(bytes)
		f.buf, bytes = f.buf[:0], 0
	}
	return "", nil
}

func (f *file) put(b []byte) error {
	n, err := f.w.Write(b)
	f.size += int64(n)
	return err
}
