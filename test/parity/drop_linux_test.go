package parity

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"
)

// What a program drops without Close is closed when it is collected.
var dropScripts = []script{
	{name: "50 connections that dialled are dropped", run: func(r *run) {
		dropConns(r, func(c, s conn) (dropped, kept conn) { return c, s })
	}},
	{name: "50 connections that accepted are dropped", run: func(r *run) {
		dropConns(r, func(c, s conn) (dropped, kept conn) { return s, c })
	}},
	{name: "10 listeners are dropped", run: func(r *run) {
		addresses := make([]string, 10)
		warm, err := r.Listen() // what a process has for all its listeners
		check(err)
		c, s := r.connect(warm)
		check(c.Close())
		check(s.Close())
		check(warm.Close())
		before := settled()
		apart(func() {
			for i := range addresses {
				ln, err := r.Listen()
				check(err)
				addresses[i] = ln.Addr().String()
				c, s := r.connect(ln)
				check(c.Close())
				check(s.Close())
			}
		})
		r.note("descriptors and goroutines are back", collected(before))
		for _, address := range addresses {
			_, err := r.Dial(address)
			r.note("Dial", describe(err))
		}
	}},
}

// dropConns drops one end of 50 connections and keeps the other.
func dropConns(r *run, which func(c, s conn) (dropped, kept conn)) {
	const conns = 50
	ln, err := r.Listen()
	check(err)
	warm, warmPeer := r.connect(ln) // what a process has for all its connections
	check(warm.Close())
	check(warmPeer.Close())
	before := settled()
	ends := make(chan string, conns)
	var reading sync.WaitGroup
	apart(func() {
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
	r.note("descriptors and goroutines are back", collected(before))
	count := map[string]int{}
	within(time.Second, func() bool {
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

// apart calls f in a goroutine that is gone when it returns, and its stack with
// it.
func apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// holds is what a process holds that a connection may leave behind.
type holds struct{ descriptors, goroutines int }

func (h holds) atMost(other holds) bool {
	return h.descriptors <= other.descriptors && h.goroutines <= other.goroutines
}

func held() holds {
	files, err := os.ReadDir("/proc/self/fd")
	check(err)
	return holds{len(files), runtime.NumGoroutine()}
}

// settled returns what the process holds when that no longer changes.
func settled() (h holds) {
	within(5*time.Second, func() bool {
		was := h
		time.Sleep(50 * time.Millisecond)
		h = held()
		return h == was
	})
	return h
}

// collected says after which collection the process holds no more than before. It
// gives each a second, and another one because the machine may be busy. The goroutines
// that have handed over a connection return first: a stack may hold one until then.
func collected(before holds) string {
	settled()
	for _, which := range []string{"after a collection", "after a second collection"} {
		runtime.GC()
		begin := time.Now()
		if within(2*time.Second, func() bool { return held().atMost(before) }) {
			fmt.Fprintln(os.Stderr, "it took", time.Since(begin))
			return which
		}
		fmt.Fprintf(os.Stderr, "%s: %+v before, %+v now\n", which, before, held())
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
	return "no"
}
