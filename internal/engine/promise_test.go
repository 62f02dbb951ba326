package engine

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/internal/observe"
)

const (
	fullPromise  = RecvBuffers * recvSize
	leastPromise = leastBuffers * leastSize
	leastCharge  = leastPromise + connMemory
)

// pairs returns n connections, as the end that dialled and the other.
func pairs(t *testing.T, n int, server *Config) (clients, servers []*Conn) {
	t.Helper()
	if server == nil {
		server = new(Config)
	}
	ln, err := (&ListenConfig{Config: server}).Listen(t.Context(), "sdp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	for range n {
		c, s, err := bothEnds(ln, engineDial)
		require.NoError(t, err)
		t.Cleanup(func() {
			c.Close()
			s.Close()
		})
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		require.NoError(t, s.SetDeadline(time.Now().Add(time.Minute)))
		clients, servers = append(clients, engineOf(t, c)), append(servers, engineOf(t, s))
	}
	return clients, servers
}

// awaitStill waits until the Writes of the writers wait for credit, and nothing more arrives at the
// readers. It returns how many bytes the readers' programs have yet to read.
func awaitStill(t *testing.T, writers, readers []*Conn) (bytes int) {
	t.Helper()
	still := 0
	require.Eventually(t, func() bool {
		now := 0
		for _, c := range readers {
			now += c.Stats().Unread
		}
		for _, c := range writers {
			c.mu.Lock()
			if !c.out.starved {
				still = 0
			}
			c.mu.Unlock()
		}
		if still++; now != bytes {
			still, bytes = 0, now
		}
		return still > 4
	}, time.Minute, idleTick)
	return bytes
}

// nothingPromised waits until what earlier tests have left is given back.
func nothingPromised(t *testing.T) {
	t.Helper()
	require.True(t, given(), "%d bytes are still promised", budget.Process.Used())
}

// promisedBy is what a connection has promised.
func promisedBy(c *Conn) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.promise.bytes()
}

func TestPromiseIsChargedAndGivenBack(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	nothingPromised(t)
	t.Setenv(memoryVariable, "1G")
	clients, servers := pairs(t, 3, nil)
	require.Eventually(t, func() bool { return observe.Totals().Memory == 6*(fullPromise+connMemory) }, soon, time.Millisecond)
	c, s := clients[0], servers[0]
	var writing sync.WaitGroup
	writing.Go(func() {
		_, err := writeStream(c, 0, 16<<20, 1<<20)
		assert.NoError(t, err)
	})
	_, err := readStream(s, 0, 16<<20, 1<<20)
	require.NoError(t, err)
	writing.Wait()
	require.Eventually(t, func() bool {
		return observe.Totals().Memory == int64(5*fullPromise+promisedBy(s)+6*connMemory)
	}, soon, time.Millisecond)
	assert.LessOrEqual(t, promisedBy(s), 2*recvWindow)
	for i := range clients {
		clients[i].Close()
		servers[i].Close()
	}
	nothingPromised(t)
}

// TestBudgetBoundsWhatIsUnread by many programs together; and nothing of it is lost.
func TestBudgetBoundsWhatIsUnread(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	many, budgeted, total := 40, 16<<20, 2<<20
	sizes := []int{1 << 20, 8 << 10, 1000}
	if testing.Short() {
		many, budgeted, total = 12, 4<<20, 1<<20
		sizes = []int{1 << 20, 1000}
	}
	t.Setenv(memoryVariable, strconv.Itoa(budgeted))
	for _, size := range sizes {
		t.Run(fmt.Sprint("Writes of ", size), func(t *testing.T) {
			nothingPromised(t)
			clients, servers := pairs(t, many, nil)
			var calls sync.WaitGroup
			for _, c := range clients {
				calls.Go(func() {
					_, err := writeStream(c, 0, total, size)
					assert.NoError(t, err)
					assert.NoError(t, c.CloseWrite())
				})
			}
			n := awaitStill(t, clients, servers)
			t.Logf("%d KB are unread, %d KB promised", n>>10, observe.Totals().Memory>>10)
			assert.LessOrEqual(t, n, budgeted+many*leastPromise)
			assert.LessOrEqual(t, observe.Totals().Memory, int64(budgeted+2*many*leastCharge))
			for _, s := range servers {
				assert.LessOrEqual(t, s.Stats().Unread, budgeted/8)
				assert.Positive(t, s.Stats().Unread)
				calls.Go(func() {
					n, err := readStream(s, 0, forever, 100_000)
					assert.Equal(t, io.EOF, err)
					assert.Equal(t, total, n)
				})
			}
			calls.Wait()
			assert.LessOrEqual(t, observe.Totals().Memory, int64(budgeted+2*many*leastCharge))
		})
	}
}

// TestBothWriteWithoutBudget get as far as the least that each has, and on when they read.
func TestBothWriteWithoutBudget(t *testing.T) {
	nothingPromised(t)
	t.Setenv(thresholdVariable, "-1")
	t.Setenv(memoryVariable, strconv.Itoa(4*leastCharge))
	total := 1 << 20
	if testing.Short() {
		total = 200 << 10
	}
	for _, size := range []int{total, 3000, 100} {
		t.Run(fmt.Sprint("Writes of ", size), func(t *testing.T) {
			nothingPromised(t)
			clients, servers := pairs(t, 2, nil)
			ends := append(clients, servers...)
			var calls sync.WaitGroup
			for _, c := range ends {
				calls.Go(func() {
					_, err := writeStream(c, 0, total, size)
					assert.NoError(t, err)
				})
			}
			awaitStill(t, ends, ends)
			for _, c := range ends {
				assert.Positive(t, c.Stats().Unread)
				assert.LessOrEqual(t, c.Stats().Unread, leastPromise)
			}
			assert.LessOrEqual(t, observe.Totals().Memory, int64(len(ends)*leastCharge))
			for _, c := range ends {
				calls.Go(func() {
					_, err := readStream(c, 0, total, 10_000)
					assert.NoError(t, err)
				})
			}
			calls.Wait()
			assert.LessOrEqual(t, observe.Totals().Memory, int64(len(ends)*leastCharge))
		})
	}
}

// TestNoRoomForAnotherConnection: there is no SDP over RDMA then, at either end, and a connection on network tcp is plain.
func TestNoRoomForAnotherConnection(t *testing.T) {
	nothingPromised(t)
	for name, room := range map[string]int{"neither": leastCharge - 1, "the client alone": leastCharge} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(memoryVariable, strconv.Itoa(room))
			ln, err := (&ListenConfig{asking}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			c, s, err := bothEnds(ln, func(address string) (net.Conn, error) {
				c, err := (&Dialer{Config: asking}).Dial("tcp", address)
				if err == nil {
					_, err = c.Write([]byte{1}) // the listener waits for the first bytes of a client that may ask
				}
				return c, err
			})
			require.NoError(t, err)
			defer c.Close()
			defer s.Close()
			_, err = io.ReadFull(s, make([]byte, 1))
			require.NoError(t, err)
			assert.IsType(t, (*net.TCPConn)(nil), c)
			sameBytes(t, c, s, random(1000))
			sameBytes(t, s, c, random(1000))
			assert.Zero(t, budget.Process.Used())
		})
	}
	t.Setenv(memoryVariable, "64K")
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	_, err = engineDial(ln.Addr().String())
	assert.ErrorIs(t, err, errMemory)
}

// TestPromiseFollowsTheBudget: a stream that began with the least has more when there is
// more, and gives it up again, as it is used, when others need it and it does not.
func TestPromiseFollowsTheBudget(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	nothingPromised(t)
	t.Setenv(memoryVariable, "4M")
	readMemory()
	others := int(budget.Process.Limit()) - 2*leastCharge
	budget.Process.Charge(others)
	clients, servers := pairs(t, 1, nil)
	c, s := clients[0], servers[0]
	off := 0
	move := func(bytes, size int) {
		t.Helper()
		var writing sync.WaitGroup
		writing.Go(func() {
			_, err := writeStream(c, off, off+bytes, size)
			assert.NoError(t, err)
		})
		if bytes > leastPromise {
			awaitStill(t, clients, servers) // then the peer has used up what it has
		}
		_, err := readStream(s, off, off+bytes, size)
		assert.NoError(t, err)
		writing.Wait()
		off += bytes
	}
	move(4<<20, 256<<10)
	assert.LessOrEqual(t, promisedBy(s), leastPromise)
	budget.Process.Give(others)
	move(16<<20, 256<<10)
	wide := promisedBy(s)
	assert.Greater(t, wide, 2*leastPromise)
	assert.LessOrEqual(t, wide, 4<<20/8, "an eighth")
	budget.Process.Charge(others)
	for range 400 {
		move(1000, 1000)
	}
	assert.Less(t, promisedBy(s), wide/2)
	budget.Process.Give(others)
}

// TestReadBufferBoundsWhatIsUnread, whether the program says it to the listener or to the
// connection that it has accepted.
func TestReadBufferBoundsWhatIsUnread(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	for _, v := range []struct{ config, most int }{
		{256 << 10, 256 << 10},
		{leastPromise, leastPromise},
		{32 << 10, 32 << 10},
		{100, leastBuffers * smallestSize},
	} {
		for _, size := range []int{1 << 20, 100} {
			t.Run(fmt.Sprintf("%d bytes in Writes of %d", v.config, size), func(t *testing.T) {
				clients, servers := pairs(t, 1, &Config{ReadBuffer: v.config})
				c, s := clients[0], servers[0]
				var calls sync.WaitGroup
				part, parts := 128<<10, 3
				if testing.Short() {
					part, parts = 32<<10, 2
				}
				total := v.most + parts*part + 64<<10 // the last part is more than the rest of a Write that may have begun
				calls.Go(func() {
					_, err := writeStream(c, 0, total, size)
					assert.NoError(t, err)
				})
				for read := 0; read < parts*part; read += part { // it is the same when some of it has been read
					assert.LessOrEqual(t, awaitStill(t, clients, servers), v.most)
					assert.LessOrEqual(t, promisedBy(s), v.most)
					_, err := readStream(s, read, read+part, 10_000)
					require.NoError(t, err)
				}
				_, err := readStream(s, parts*part, total, 10_000)
				assert.NoError(t, err)
				calls.Wait()
			})
		}
	}
}

// TestSetReadBufferAndBack: what a program has given up it gets again, at once while the
// budget has it.
func TestSetReadBufferAndBack(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	t.Setenv(memoryVariable, "1G")
	clients, servers := pairs(t, 1, nil)
	c, s := clients[0], servers[0]
	move := func(from, to int) {
		t.Helper()
		var reading sync.WaitGroup
		reading.Go(func() {
			_, err := readStream(s, from, to, 10_000)
			assert.NoError(t, err)
		})
		_, err := writeStream(c, from, to, 10_000)
		assert.NoError(t, err)
		reading.Wait()
	}
	require.NoError(t, s.SetReadBuffer(leastPromise))
	move(0, 6<<20)
	assert.Equal(t, minBuffers*recvSize, promisedBy(s))
	require.NoError(t, s.SetReadBuffer(fullPromise))
	assert.Equal(t, fullPromise, promisedBy(s))
	move(6<<20, 7<<20)
	assert.Equal(t, fullPromise, promisedBy(s))
}

// TestSmallReadBufferSlowsDownOneDirection: what an end takes slowly does not hold up what it
// writes.
func TestSmallReadBufferSlowsDownOneDirection(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	size := 32 << 20
	if testing.Short() {
		size = 8 << 20
	}
	clients, servers := pairs(t, 1, nil)
	c, s := clients[0], servers[0]
	require.NoError(t, c.SetReadBuffer(1))
	var calls, all sync.WaitGroup
	calls.Go(func() { writeStream(s, 0, forever, 64<<10) })
	calls.Go(func() { readStream(c, 0, forever, 64<<10) })
	all.Go(func() {
		_, err := readStream(s, 0, size, 64<<10)
		assert.NoError(t, err)
	})
	_, err := writeStream(c, 0, size, 64<<10)
	assert.NoError(t, err)
	if err != nil {
		s.Close()
	}
	all.Wait()
	c.Close() // resets the connection: not everything was read
	calls.Wait()
}

// TestSmallMessagesWithoutBudget: two programs that each write some small messages before
// they read go on, as over TCP, however little their connections have.
func TestSmallMessagesWithoutBudget(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	for _, v := range []struct {
		name   string
		memory string
		config *Config
	}{
		{"no budget", strconv.Itoa(4 * leastCharge), nil},
		{"a small read buffer", "1G", &Config{ReadBuffer: 4096}},
	} {
		t.Run(v.name, func(t *testing.T) {
			nothingPromised(t)
			t.Setenv(memoryVariable, v.memory)
			clients, servers := pairs(t, 1, v.config)
			var ends sync.WaitGroup
			for _, c := range append(clients, servers...) {
				ends.Go(func() {
					_, err := writeStream(c, 0, 100, 10)
					assert.NoError(t, err)
					_, err = readStream(c, 0, 100, 10)
					assert.NoError(t, err)
				})
			}
			ends.Wait()
		})
	}
}

// TestShrunkBuffersStayCharged: what came in larger buffers is counted until it is read.
func TestShrunkBuffersStayCharged(t *testing.T) {
	c, s, _, _ := counted(t, -1)
	_, err := writeStream(c, 0, 100_000, 10_000)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Stats().Unread == 100_000 }, soon, time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session.Resize(100)
	s.promise.aim()
	assert.GreaterOrEqual(t, s.promise.bytes(), 100_000)
	assert.EqualValues(t, s.promise.bytes()+connMemory, s.promise.charged)
}
