package iwarp

import "github.com/gosdp/gosdp/rdma/iwarp/internal/nic"

// carrier is the queue pair as its SendQueue sees it.
type carrier QueuePair

var _ nic.Carrier = (*carrier)(nil)

// Busy, WaitRoom, WakeRoom and Flush are those of rdma.QueuePair.
func (q *QueuePair) Busy() bool      { return q.tx.Busy() }
func (q *QueuePair) WaitRoom() error { return q.tx.WaitRoom((*carrier)(q)) }
func (q *QueuePair) WakeRoom()       { q.tx.WakeRoom((*carrier)(q)) }
func (q *QueuePair) Flush()          { q.tx.Flush((*carrier)(q)) }

// CarryLocked is in the transport's waitWrite until the queue is empty or, forRoom, short
// enough, until it was woken, or until the sending half has ended.
func (c *carrier) CarryLocked(forRoom bool) {
	q := (*QueuePair)(c)
	tx := &q.tx
	if tx.silent {
		tx.WaitLocked()
		return
	}
	tx.BeginCarryLocked()
	err := q.t.waitWrite(func() bool {
		tx.Lock()
		defer tx.Unlock()
		if tx.Err != nil && !tx.terminating {
			return true
		}
		done, err := q.flushLocked()
		return done || err != nil || tx.yielded || forRoom && !tx.Busy()
	})
	tx.EndCarry()
	if err != nil && err != errWoken {
		q.sendFailedLocked(err)
	}
	if forRoom && (len(tx.responses) > 0 || tx.terminating) {
		tx.StartPumpLocked(c) // WaitRoom returns before these have been sent
	}
}

// PendingLocked reports whether the pump has something to send.
func (c *carrier) PendingLocked() bool { return !c.tx.silent && c.tx.pendingLocked() }

// WakeCarryLocked ends waitWrite.
func (c *carrier) WakeCarryLocked() { c.t.wakeWrite() }

// pendingLocked reports whether something is queued that can still be sent.
func (tx *sender) pendingLocked() bool {
	return (tx.Err == nil || tx.terminating) && (len(tx.out) > 0 || len(tx.writes) > 0 || len(tx.responses) > 0)
}

// Settled reports whether the transport holds nothing in this process; see rdma.QueuePair. A
// kernel's socket never does, once the queue pair is not Busy.
func (q *QueuePair) Settled() bool { return q.t.settled() }

// Settle waits for that.
func (q *QueuePair) Settle() error {
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	switch {
	case tx.Err != nil:
		return tx.Err
	case tx.Woken:
		tx.Woken = false
		return nil
	}
	tx.Parked = true
	tx.Unlock()
	err := q.t.settle()
	tx.Lock()
	tx.Parked = false
	switch err {
	case nil:
	case errWoken:
		tx.Woken = false
	default:
		return q.sendFailedLocked(err)
	}
	return nil
}
