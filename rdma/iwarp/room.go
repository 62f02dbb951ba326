package iwarp

// WaitRoom parks until the device is not Busy; see rdma.QueuePair.
func (q *QueuePair) WaitRoom() error {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.wanted++
	defer func() {
		tx.wanted--
		tx.cond.Broadcast()
	}()
	for {
		switch {
		case tx.err != nil:
			return tx.err
		case tx.woken:
			tx.woken = false
			return nil
		case !tx.busy.Load():
			return nil
		case tx.pumping || tx.silent:
			tx.cond.Wait()
		default:
			tx.inRoom = true
			q.carry(func() bool { return !tx.busy.Load() })
			tx.inRoom = false
			if len(tx.responses) > 0 || tx.lastWords {
				q.startPump() // it returns before they are out
			}
		}
	}
}

// Settled reports that the stream below has taken everything; see rdma.Settler. A
// kernel's socket has when the queue pair is not Busy.
func (q *QueuePair) Settled() bool { return q.t.settled() }

// Settle waits for that.
func (q *QueuePair) Settle() error {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	switch {
	case tx.err != nil:
		return tx.err
	case tx.woken:
		tx.woken = false
		return nil
	}
	tx.inRoom = true
	tx.mu.Unlock()
	err := q.t.settle()
	tx.mu.Lock()
	tx.inRoom = false
	switch err {
	case nil:
	case errWoken:
		tx.woken = false
	default:
		return q.sendFailed(err)
	}
	return nil
}

// WakeRoom makes WaitRoom return; see rdma.QueuePair.
func (q *QueuePair) WakeRoom() {
	tx := &q.tx
	tx.mu.Lock()
	tx.woken = true
	if tx.inRoom {
		q.t.wakeWrite()
	}
	tx.cond.Broadcast()
	tx.mu.Unlock()
}

// carry is in the transport's waitWrite until enough has been written, it was
// woken, or the sending half has ended. Called with mu held and nobody pumping.
func (q *QueuePair) carry(enough func() bool) {
	tx := &q.tx
	tx.pumping = true
	tx.mu.Unlock()
	err := q.t.waitWrite(func() bool {
		tx.mu.Lock()
		defer tx.mu.Unlock()
		if tx.err != nil && !tx.lastWords {
			return true
		}
		done, err := q.flush()
		return done || err != nil || tx.yielded || enough()
	})
	tx.mu.Lock()
	tx.pumping = false
	if err != nil && err != errWoken {
		q.sendFailed(err)
	}
	tx.cond.Broadcast()
}

// Flush has the pump carry what is queued.
func (q *QueuePair) Flush() {
	q.tx.mu.Lock()
	q.startPump()
	q.tx.mu.Unlock()
}

// startPump starts the pump if something is queued and nobody carries it.
func (q *QueuePair) startPump() {
	tx := &q.tx
	if tx.pumping || tx.silent || !tx.pending() {
		return
	}
	tx.pumping = true // before the goroutine runs, so that there is one only
	tx.pump.Go(func() {
		tx.mu.Lock()
		defer tx.mu.Unlock()
		tx.pumping = false
		for tx.pending() {
			q.carry(func() bool { return false })
			for tx.wanted > 0 && !tx.busy.Load() && tx.err == nil {
				tx.cond.Wait() // it has room now, and is about to leave
			}
			if tx.pumping {
				return // WaitRoom carries meanwhile, and starts another pump
			}
		}
		tx.cond.Broadcast()
	})
}

// pending reports that something is queued that can still be sent.
func (tx *sender) pending() bool {
	return (tx.err == nil || tx.lastWords) && (len(tx.out) > 0 || len(tx.writes) > 0 || len(tx.responses) > 0)
}
