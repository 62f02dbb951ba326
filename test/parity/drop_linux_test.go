package parity

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"
)

// dropScripts: a connection or listener that is dropped without Close is closed when it is
// garbage collected.
var dropScripts = []script{
	{name: "50 connections that dialled are dropped", run: func(r *run) {
		dropConns(r, func(c, s conn) (dropped, kept conn) { return c, s })
	}},
	{name: "50 connections that accepted are dropped", run: func(r *run) {
		dropConns(r, func(c, s conn) (dropped, kept conn) { return s, c })
	}},
	{name: "10 listeners are dropped", run: func(r *run) {
		addresses := make([]string, 10)
		warm, err := r.Listen() // allocates what all listeners of the process share
		check(err)
		c, s := r.connect(warm)
		check(c.Close())
		check(s.Close())
		check(warm.Close())
		before := settled()
		onGoroutine(func() {
			for i := range addresses {
				ln, err := r.Listen()
				check(err)
				addresses[i] = ln.Addr().String()
				c, s := r.connect(ln)
				check(c.Close())
				check(s.Close())
			}
		})
		r.note("descriptors and goroutines are back", collected(r.with(before)))
		for _, address := range addresses {
			_, err := r.Dial(address)
			r.note("Dial", describe(err))
		}
	}},
}

// dropConns drops one end of each of 50 connections and keeps the other.
func dropConns(r *run, which func(c, s conn) (dropped, kept conn)) {
	const conns = 50
	ln, err := r.Listen()
	check(err)
	warm, warmPeer := r.connect(ln) // allocates what all connections of the process share
	check(warm.Close())
	check(warmPeer.Close())
	before := settled()
	ends := make(chan string, conns)
	var reading sync.WaitGroup
	onGoroutine(func() {
		for range conns {
			dropped, kept := which(r.connect(ln))
			_, err := dropped.Write(bytesOf(100))
			check(err)
			_, err = kept.Write(bytesOf(100))
			check(err)
			_, err = readTo(dropped, 0, 100)
			check(err)
			reading.Go(func() {
				got, err := readTo(kept, 0, endless)
				ends <- fmt.Sprintf("%s, then %s", amount(got, 100), describe(err))
				kept.Close()
			})
		}
	})
	r.note("descriptors and goroutines are back", collected(r.with(before)))
	count := map[string]int{}
	eventually(func() bool {
		for {
			select {
			case end := <-ends:
				count[end]++
			default:
				return count["every byte, then EOF"] == conns
			}
		}
	})
	r.note("the peers read", fmt.Sprint(count))
	runtime.KeepAlive(ln)
}

// onGoroutine calls f on a new goroutine and waits for it, so that no reference remains on
// the caller's stack.
func onGoroutine(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// resources are the resources of a process that a connection may leak.
type resources struct{ descriptors, goroutines int }

func (h resources) atMost(other resources) bool {
	return h.descriptors <= other.descriptors && h.goroutines <= other.goroutines
}

// with adds what all connections of the process share: the socket that looks for a peer to share memory with.
func (r *run) with(h resources) resources {
	if r.name == "shm" {
		h.descriptors++
	}
	return h
}

func held() resources {
	files, err := os.ReadDir("/proc/self/fd")
	check(err)
	return resources{len(files), runtime.NumGoroutine()}
}

// settled waits until the resources no longer change, and returns them.
func settled() (h resources) {
	eventually(func() bool {
		was := h
		time.Sleep(50 * time.Millisecond)
		h = held()
		return h == was
	})
	return h
}

// collected collects garbage until the process holds no more resources than before, and says
// whether it does.
func collected(before resources) string {
	if eventually(func() bool {
		runtime.GC()
		return held().atMost(before)
	}) {
		return "yes"
	}
	fmt.Fprintf(os.Stderr, "%+v before, %+v now\n", before, held())
	pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	return "no"
}
