package engine

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/gosdp/gosdp/wire"
)

// countedPair is a queue pair that keeps account of the program's memory: what is
// exposed to the peer, and what the device uses.
type countedPair struct {
	rdma.QueuePair

	mu         sync.Mutex
	exposed    map[rdma.STag]rdma.Access
	registered map[rdma.Access]int // how often
	reads      int                 // RDMA Reads that have not completed
	writes     int                 // RDMA Writes that have not
	posted     map[rdma.Op]int     // how many of both there were
	revoked    int                 // regions that the peer has invalidated

	readErr    error // what PostRead says
	busyPoll   time.Duration
	refused    int              // how often it has said so
	keepWrites bool             // completions of RDMA Writes are kept from the owner
	onWrite    func(posted int) // told how many RDMA Writes there were, before each
}

func newCounted(qp rdma.QueuePair) *countedPair {
	return &countedPair{
		QueuePair: qp, exposed: make(map[rdma.STag]rdma.Access),
		registered: make(map[rdma.Access]int), posted: make(map[rdma.Op]int),
	}
}

func (q *countedPair) SetBusyPoll(d time.Duration) { q.busyPoll = d }

// Limits are those of a device that cannot be asked whether it has finished.
func (q *countedPair) Limits() rdma.Limits {
	l := q.QueuePair.Limits()
	l.Finishes = false
	return l
}

func (q *countedPair) Finish() (ended, done bool) { return false, false }

func (q *countedPair) Register(b []byte, access rdma.Access) (rdma.Region, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	region, err := q.QueuePair.Register(b, access)
	if err == nil {
		q.exposed[region.STag] = access
		q.registered[access]++
	}
	return region, err
}

func (q *countedPair) Invalidate(s rdma.STag) {
	q.QueuePair.Invalidate(s)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.exposed, s)
}

func (q *countedPair) PostRead(wr rdma.ReadWR) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.readErr != nil {
		q.refused++
		return q.readErr
	}
	err := q.QueuePair.PostRead(wr)
	if err == nil {
		q.reads++
		q.posted[rdma.OpRead]++
	}
	return err
}

func (q *countedPair) PostWrite(wr rdma.WriteWR) error {
	if q.onWrite != nil {
		_, writes := q.counts()
		q.onWrite(writes)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.QueuePair.PostWrite(wr)
	if err == nil {
		q.writes++
		q.posted[rdma.OpWrite]++
	}
	return err
}

func (q *countedPair) Poll(wcs []rdma.Completion) (int, error) {
	n, err := q.QueuePair.Poll(wcs)
	return q.completed(wcs[:n]), err
}

func (q *countedPair) Wait(wcs []rdma.Completion) (int, error) {
	n, err := q.QueuePair.Wait(wcs)
	return q.completed(wcs[:n]), err
}

// completed takes in completions, and returns how many of them the owner gets.
func (q *countedPair) completed(wcs []rdma.Completion) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, wc := range wcs {
		if wc.Op == rdma.OpWrite && q.keepWrites {
			continue
		}
		wcs[n] = wc
		n++
		switch {
		case wc.Op == rdma.OpRead:
			q.reads--
		case wc.Op == rdma.OpWrite:
			q.writes--
		case wc.Invalidated != 0:
			q.revoked++
			delete(q.exposed, wc.Invalidated)
		}
	}
	return n
}

// given returns how many regions that allow the access are exposed, and how many
// transfers of the kind use memory of ours.
func (q *countedPair) given(access rdma.Access, op rdma.Op) (exposed, used int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.exposed {
		if a == access {
			exposed++
		}
	}
	if op == rdma.OpRead {
		return exposed, q.reads
	}
	return exposed, q.writes
}

// backFromWrite checks that nothing of a Write is given away any more.
func (q *countedPair) backFromWrite(t *testing.T) {
	exposed, used := q.given(rdma.RemoteRead, rdma.OpWrite)
	assert.Zero(t, exposed, "regions that the peer may fetch from after a Write")
	assert.Zero(t, used, "RDMA Writes under way after a Write")
}

// backFromRead checks that nothing of a Read is given away any more.
func (q *countedPair) backFromRead(t *testing.T) {
	exposed, used := q.given(rdma.RemoteWrite, rdma.OpRead)
	assert.Zero(t, exposed, "regions that the peer may fill after a Read")
	assert.Zero(t, used, "RDMA Reads under way after a Read")
}

// counts returns how many RDMA Reads and Writes there were.
func (q *countedPair) counts() (reads, writes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.posted[rdma.OpRead], q.posted[rdma.OpWrite]
}

// counted returns both ends of a connection of which Writes of more than threshold
// bytes are advertised, and their queue pairs.
func counted(t testing.TB, threshold int) (c, s *Conn, cq, sq *countedPair) {
	t.Helper()
	return countedWith(t, Tuning{Threshold: threshold})
}

func countedWith(t testing.TB, tuned Tuning) (c, s *Conn, cq, sq *countedPair) {
	t.Helper()
	a, b := rawPair(t)
	cfg := iwarp.Config{NoCRC: true, IRD: maxReads, ORD: maxReads, MaxULPDU: mpa.SoftwareULPDU}
	server := make(chan rdma.QueuePair, 1)
	go func() {
		defer close(server)
		request, err := iwarp.ReadRequest(b)
		if !assert.NoError(t, err) {
			return
		}
		if qp, err := request.Accept(cfg, nil); assert.NoError(t, err) {
			server <- qp
		}
	}()
	up := func(tcp net.Conn, qp rdma.QueuePair, first *wire.Header) (*Conn, *countedPair) {
		q, hello := newCounted(qp), OurHello(0)
		c, err := New(tcp, q, Setup{
			Device: "iwarp", Tuning: tuned, Local: hello, Peer: hello, First: first,
		})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
		return engineOf(t, c), q
	}
	client, _, err := iwarp.Connect(a, cfg, nil)
	require.NoError(t, err)
	sqp := <-server
	require.NotNil(t, sqp)
	client.ProvideReceive(RecvBuffers, recvSize)
	sqp.ProvideReceive(RecvBuffers, recvSize)
	c, cq = up(a, client, nil)
	var wcs [1]rdma.Completion
	n, err := sqp.Wait(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n, "the decision")
	var m wire.Message
	require.NoError(t, m.Parse(wcs[0].Buffer.Bytes))
	wcs[0].Buffer.Release()
	s, sq = up(b, sqp, &m.Header)
	return c, s, cq, sq
}
