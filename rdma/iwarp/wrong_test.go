package iwarp

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/rdmatest"
)

// wrongVariable is the environment variable that names the fault of TestWrongApart's device.
const wrongVariable = "IWARP_WRONG"

// The faults that a suite cannot find with both ends in one process.
const (
	passesPointers = "a message stays where it is, and only its number is sent"
	missesDeath    = "an end notices only what another one in this process does"
)

// TestWrongApart is TestApart for a device with the fault that the environment names.
func TestWrongApart(t *testing.T) {
	fault := os.Getenv(wrongVariable)
	if fault == "" {
		t.Skip("missing: " + wrongVariable + ", the name of a fault; TestApartNotices sets it")
	}
	a, b := halves(Config{NoCRC: true}, false)
	rdmatest.RunApart(t, wrongHalf(a, fault), wrongHalf(b, fault))
}

// TestApartNotices shows that these faults fail the scenes that are meant for them, and only with
// the ends in two processes.
func TestApartNotices(t *testing.T) {
	for _, c := range []struct{ fault, scene string }{
		{passesPointers, "Messages"},
		{missesDeath, "Close"},
		{missesDeath, "KilledIdle"},
		{missesDeath, "KilledWhileRead"},
		{missesDeath, "KilledUnread"},
	} {
		t.Run(c.scene, func(t *testing.T) {
			t.Parallel()
			test, variable := "TestWrongApart/"+c.scene, wrongVariable+"="+c.fault
			rdmatest.ExpectNoticed(t, test+"/apart", variable)
			if c.scene == "Messages" || c.scene == "Close" {
				rdmatest.ExpectUnnoticed(t, test+"/together", variable)
			}
		})
	}
}

// wrong is a queue pair with one fault.
type wrong struct {
	*QueuePair
	fault string
	over  chan struct{} // closed by Close or Abort
	once  sync.Once
}

// What the faulty queue pairs of a process share.
var (
	messages sync.Map // that were sent, by number
	numbers  atomic.Uint64
	anyOver  atomic.Bool // one of them was closed
)

func wrongHalf(h rdmatest.Half, fault string) rdmatest.Half {
	return func(t *testing.T, line *rdmatest.Line) rdma.QueuePair {
		anyOver.Store(false)
		return &wrong{QueuePair: h(t, line).(*QueuePair), fault: fault, over: make(chan struct{})}
	}
}

// PostSend sends the number of a message instead of the message.
func (w *wrong) PostSend(wrs []rdma.SendWR) (int, error) {
	if w.fault != passesPointers {
		return w.QueuePair.PostSend(wrs)
	}
	for i, wr := range wrs {
		number := numbers.Add(1)
		messages.Store(number, slices.Concat(wr.Header, wr.Payload))
		wr.Header = binary.BigEndian.AppendUint64(nil, number)
		if n, err := w.QueuePair.PostSend([]rdma.SendWR{wr}); n == 0 {
			return i, err
		}
	}
	return len(wrs), nil
}

// Wait finds the message with that number. It believes what the kernel says about the other end
// only if an end of this process has said the same.
func (w *wrong) Wait(wcs []rdma.Completion) (int, error) {
	n, err := w.QueuePair.Wait(wcs)
	for i := range wcs[:n] {
		if c := &wcs[i]; w.fault == passesPointers && c.Op == rdma.OpReceive {
			m, _ := messages.Load(binary.BigEndian.Uint64(c.Buffer.Bytes))
			c.Buffer.Bytes, _ = m.([]byte)
		}
	}
	if w.fault == missesDeath && err != nil && !errors.As(err, new(*rdma.ProtocolError)) && !anyOver.Load() {
		<-w.over
	}
	return n, err
}

func (w *wrong) Close() error {
	anyOver.Store(true)
	w.once.Do(func() { close(w.over) })
	return w.QueuePair.Close()
}

func (w *wrong) Abort() error {
	anyOver.Store(true)
	w.once.Do(func() { close(w.over) })
	return w.QueuePair.Abort()
}
