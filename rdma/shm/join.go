//go:build linux

package shm

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// Two ends open a channel over a Unix socket with three messages:
//
//	dials    → opening: the token, a nonce and where it is in our memory, what we
//	           have to say; and the memory file
//	listens  → answer: its own nonce, whether it could read ours, what it says
//	dials    → a byte: whether both can read each other's memory
//
// From then on the socket is the bell.
const (
	magic       = "SDPshm2\n" // with the layout in it
	nonceLen    = 16
	openingLen  = len(magic) + 16 + 8 + nonceLen + 2
	answerLen   = len(magic) + 1 + 8 + nonceLen + 2
	mostPrivate = 255
)

// The bits of an answer, and of the last byte.
const (
	canRead = 1 << iota // the sender can read the other's memory
	refused             // what the answer says is why
)

// nonce is bytes in our memory that only we know.
type nonce [nonceLen]byte

// newNonce returns a new one. It lies on the heap: inlined, it might lie on a stack,
// which moves while the peer looks for it.
//
//go:noinline
func newNonce() *nonce {
	n := new(nonce)
	rand.Read(n[:])
	return n
}

// A page of the peer's may be one that never comes: behind userfaultfd, or in a file
// of a file system that a process serves. Who reads it is in the kernel until the peer
// lets go, and no signal but the last gets him out. So a goroutine reads the nonce, to
// memory of its own, and is left behind when its time is over. tries holds one for each
// of these goroutines: when all are left behind, which leftBehind counts, no more are,
// and nobody's memory is found to be in reach.
var (
	tries      = make(chan struct{}, 16)
	leftBehind atomic.Int32
)

// tryTime is for how long a nonce is looked for. It takes microseconds.
const tryTime = 250 * time.Millisecond

// try reports that the nonce is where the peer says that it is: then its memory
// can be read.
func try(pid int, address uint64, want []byte) bool {
	if pid == 0 || int(leftBehind.Load()) == cap(tries) {
		return false
	}
	late := time.NewTimer(tryTime)
	defer late.Stop()
	select {
	case tries <- struct{}{}:
	case <-late.C:
		return false
	}
	found := make(chan bool, 1)
	var parted atomic.Bool // it has come to its end, or been left behind
	go func() {
		defer func() {
			if !parted.CompareAndSwap(false, true) {
				leftBehind.Add(-1)
			}
			<-tries
		}()
		var got [nonceLen]byte
		local := [1]unix.Iovec{{Base: &got[0]}}
		local[0].SetLen(nonceLen)
		remote := [1]unix.RemoteIovec{{Base: uintptr(address), Len: nonceLen}}
		n, err := unix.ProcessVMReadv(pid, local[:], remote[:], 0)
		found <- err == nil && n == nonceLen && bytes.Equal(got[:], want)
	}()
	select {
	case is := <-found:
		return is
	case <-late.C:
	}
	leftBehind.Add(1)
	if !parted.CompareAndSwap(false, true) { // a machine that has stood still has both
		leftBehind.Add(-1)
		return <-found
	}
	return false
}

// join is the side that dials.
func join(conn *net.UnixConn, to rdma.Address, cfg rdma.StepConfig, private []byte, settle func([]byte) (int, error)) (*QueuePair, error) {
	if len(private) > mostPrivate {
		return nil, fmt.Errorf("shm: %d bytes to say, at most %d fit", len(private), mostPrivate)
	}
	pid, uid, err := credentials(conn, cfg.UIDs)
	if err != nil {
		return nil, err
	}
	a, f, err := newArea()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	mine := newNonce()
	defer runtime.KeepAlive(mine)
	h, err := open(conn, f, to.Token, mine, private)
	var ord int
	if err == nil {
		ord, err = settle(h.private)
	}
	var both bool
	if err == nil {
		both = h.flags&canRead != 0 && try(pid, h.address, h.nonce)
		_, err = conn.Write([]byte{flag(both)})
	}
	if err != nil {
		a.unmap()
		return nil, err
	}
	l := &link{conn: conn, area: a, pid: pid, uid: uid, reach: both, id: to.Token, at: to.At}
	if to.At != "" {
		l.pool = &dialled
	}
	return l.begin(cfg, ord)
}

// open sends the opening, and reads the answer.
func open(conn *net.UnixConn, f *os.File, token [16]byte, mine *nonce, private []byte) (answer, error) {
	b := make([]byte, 0, openingLen+len(private))
	b = append(b, magic...)
	b = append(b, token[:]...)
	b = binary.NativeEndian.AppendUint64(b, uint64(uintptr(unsafe.Pointer(mine))))
	b = append(b, mine[:]...)
	b = binary.NativeEndian.AppendUint16(b, uint16(len(private)))
	b = append(b, private...)
	n, _, err := conn.WriteMsgUnix(b, unix.UnixRights(int(f.Fd())), nil)
	if err == nil && n < len(b) {
		_, err = conn.Write(b[n:])
	}
	if err != nil {
		return answer{}, err
	}
	return readAnswer(conn)
}

// answer is what the end that dials reads.
type answer struct {
	flags   byte
	address uint64 // of the nonce
	nonce   []byte
	private []byte
}

// readAnswer reads an answer; one that refuses is an error.
func readAnswer(conn *net.UnixConn) (answer, error) {
	var head [answerLen]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return answer{}, ended(err)
	}
	if string(head[:len(magic)]) != magic {
		return answer{}, errors.New("shm: the answer is not one")
	}
	rest := head[len(magic):]
	h := answer{flags: rest[0], address: binary.NativeEndian.Uint64(rest[1:]), nonce: rest[1+8 : 1+8+nonceLen]}
	n := int(binary.NativeEndian.Uint16(rest[1+8+nonceLen:]))
	if n > mostPrivate {
		return answer{}, fmt.Errorf("shm: an answer of %d bytes", n)
	}
	h.private = make([]byte, n)
	if _, err := io.ReadFull(conn, h.private); err != nil {
		return answer{}, ended(err)
	}
	if h.flags&refused != 0 {
		return answer{}, fmt.Errorf("shm: the peer refuses: %q", h.private)
	}
	return h, nil
}

func flag(can bool) byte {
	if can {
		return canRead
	}
	return 0
}

func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("shm: the peer has closed the channel before it was open")
	}
	return err
}

// opening is what the end that listens reads first.
type opening struct {
	token   [16]byte
	address uint64 // of the nonce
	nonce   [nonceLen]byte
	private []byte
	file    int // -1: none
}

// readOpening reads an opening and the one descriptor that comes with it. With
// an error it has closed what came.
func readOpening(conn *net.UnixConn) (o opening, err error) {
	var files []int
	defer func() {
		if err == nil && len(files) == 0 {
			err = errors.New("shm: no descriptor came")
		}
		if err != nil {
			for _, f := range files {
				unix.Close(f)
			}
			return
		}
		o.file = files[0]
	}()
	var head [openingLen]byte
	if err := readWithFiles(conn, head[:], &files); err != nil {
		return o, err
	}
	if string(head[:len(magic)]) != magic {
		return o, errors.New("shm: the opening is not one")
	}
	rest := head[len(magic):]
	copy(o.token[:], rest)
	o.address = binary.NativeEndian.Uint64(rest[16:])
	copy(o.nonce[:], rest[16+8:])
	n := int(binary.NativeEndian.Uint16(rest[16+8+nonceLen:]))
	if n > mostPrivate {
		return o, fmt.Errorf("shm: an opening that says %d bytes", n)
	}
	o.private = make([]byte, n)
	return o, readWithFiles(conn, o.private, &files)
}

// mostFiles is room for one more descriptor than is good. The kernel drops those
// for which there is none.
const mostFiles = 2

// readWithFiles fills b, and appends the descriptors that come with it. It goes on
// only while they are one at most, since each byte may bring some.
func readWithFiles(conn *net.UnixConn, b []byte, files *[]int) error {
	oob := make([]byte, unix.CmsgSpace(4*mostFiles))
	for len(b) > 0 {
		n, k, flags, _, err := conn.ReadMsgUnix(b, oob)
		if err == nil && n == 0 && k == 0 {
			err = io.EOF
		}
		if err != nil {
			return ended(err)
		}
		messages, err := unix.ParseSocketControlMessage(oob[:k])
		if err != nil {
			return err
		}
		for i := range messages {
			if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
				*files = append(*files, fds...)
			}
		}
		switch {
		case len(*files) > 1:
			return errors.New("shm: more than one descriptor came")
		case flags&unix.MSG_CTRUNC != 0:
			return errors.New("shm: a descriptor came, and found no room")
		}
		b = b[n:]
	}
	return nil
}

// admit is the side that listens, once the opening has come: answer says what to
// answer. It owns the file, and conn if it succeeds.
func (p *place) admit(conn *net.UnixConn, o opening, pid, uid int, answer func([]byte) ([]byte, int, error)) (*QueuePair, error) {
	a, err := openArea(o.file)
	unix.Close(o.file)
	if err != nil {
		return nil, err
	}
	reply, ord, err := answer(o.private)
	if err != nil {
		a.unmap()
		return nil, err
	}
	mine := newNonce()
	can := try(pid, o.address, o.nonce[:])
	b := appendAnswer(flag(can), mine, reply)
	var last [1]byte
	if _, err = conn.Write(b); err == nil {
		_, err = io.ReadFull(conn, last[:])
		if errors.Is(err, os.ErrDeadlineExceeded) && !p.over() {
			// The peer is through with its byte. A machine that has stood still finds
			// that its time is over before it finds what has come.
			conn.SetReadDeadline(time.Now().Add(lastLook))
			_, err = io.ReadFull(conn, last[:])
		}
	}
	runtime.KeepAlive(mine)
	if err != nil {
		a.unmap()
		return nil, ended(err)
	}
	l := &link{
		conn: conn, area: a, way: 1, pid: pid, uid: uid, reach: can && last[0]&canRead != 0,
		id: o.token, pool: &p.links,
	}
	return l.begin(p.cfg, ord)
}

func appendAnswer(flags byte, n *nonce, text []byte) []byte {
	b := append([]byte(magic), flags)
	b = binary.NativeEndian.AppendUint64(b, uint64(uintptr(unsafe.Pointer(n))))
	b = append(b, n[:]...)
	b = binary.NativeEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// refuse tells the peer why there will be no channel.
func refuse(conn *net.UnixConn, why error) {
	text := why.Error()
	conn.Write(appendAnswer(refused, new(nonce), []byte(text[:min(len(text), mostPrivate)])))
}
