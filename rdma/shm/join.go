//go:build linux

package shm

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// errUnproved says that the peer is not the one that the token was for.
var errUnproved = errors.New("shm: the peer does not have the token")

// join is the side that dials. With an error the caller closes conn.
func join(conn *net.UnixConn, to rdma.Address, cfg rdma.StepConfig, private []byte, settle func([]byte) (int, error)) (*QueuePair, error) {
	if len(private) > mostPrivate {
		return nil, fmt.Errorf("shm: %d bytes to say, at most %d fit", len(private), mostPrivate)
	}
	pid, uid, err := credentials(conn, cfg.UIDs)
	if err != nil {
		return nil, err
	}
	o := opening{name: nameOf(to.Token), nonce: newNonce()}
	c, err := ask(conn, to.Token, &o)
	if err != nil {
		return nil, err
	}
	r := response{proof: [proofLen]byte(proof(to.Token, dials, o.nonce, c.nonce)), private: private}
	var mine *probe
	if cfg.ZeroCopy && reachable(pid, uid) && c.flags&wantReach != 0 {
		mine = newProbe()
		r.flags, r.address, r.probe = wantReach, mine.address(), *mine
	}
	a, h, err := respond(conn, &r)
	if err != nil {
		return nil, err
	}
	ord, err := settle(h.private)
	if err == nil {
		err = openDoorbell(conn, a, 0)
	}
	var both bool
	if err == nil {
		both = mine != nil && h.flags&canRead != 0 && try(pid, h.address, h.probe[:])
		_, err = conn.Write([]byte{flag(both, canRead)})
	}
	runtime.KeepAlive(mine)
	if err != nil {
		a.unmap()
		return nil, err
	}
	l := &link{
		conn: conn, area: a, pid: pid, uid: uid, reach: both, zeroCopy: cfg.ZeroCopy,
		id: to.Token, at: to.At,
	}
	if to.At != "" {
		l.pool = &dialled
	}
	return l.begin(cfg, ord)
}

// ask sends the opening and returns the challenge of an end that has the token.
func ask(conn *net.UnixConn, token [16]byte, o *opening) (challenge, error) {
	if _, err := conn.Write(o.append(nil)); err != nil {
		return challenge{}, err
	}
	c, err := readChallenge(conn)
	if err == nil && !hmac.Equal(c.proof[:], proof(token, listens, o.nonce, c.nonce)) {
		err = errUnproved
	}
	return c, err
}

// respond sends the response and returns the area and the answer. The socket accepts
// descriptors meanwhile: the peer sends the memory file only after it has the response.
func respond(conn *net.UnixConn, r *response) (*area, answer, error) {
	if err := setRights(conn, true); err != nil {
		return nil, answer{}, err
	}
	if _, err := conn.Write(r.append(nil)); err != nil {
		return nil, answer{}, err
	}
	h, fd, err := readAnswer(conn)
	if err != nil {
		return nil, answer{}, err
	}
	if err = setRights(conn, false); err == nil {
		err = nothingQueued(conn)
	}
	var a *area
	if err == nil {
		a, err = openArea(fd)
	}
	if err != nil {
		closeInBackground(files{fd})
		return nil, answer{}, err
	}
	unix.Close(fd)
	return a, h, nil
}

// challenge is the side that listens, once the opening has come for an invitation with
// this token. It returns the response of an end that has the token too.
func (p *place) challenge(conn *net.UnixConn, token [16]byte, o *opening, reach bool) (response, error) {
	c := challenge{flags: flag(reach, wantReach), nonce: newNonce()}
	copy(c.proof[:], proof(token, listens, o.nonce, c.nonce))
	if _, err := conn.Write(c.append(nil)); err != nil {
		return response{}, err
	}
	r, err := readResponse(conn)
	if err == nil && !hmac.Equal(r.proof[:], proof(token, dials, o.nonce, c.nonce)) {
		err = errUnproved
	}
	return r, err
}

// admit makes the memory for a peer that has responded. says returns what to answer. With
// an error conn remains the caller's.
func (p *place) admit(conn *net.UnixConn, token [16]byte, r *response, pid, uid int, says func([]byte) ([]byte, int, error)) (*QueuePair, error) {
	if err := socketFits(conn); err != nil {
		return nil, err
	}
	reply, ord, err := says(r.private)
	if err != nil {
		return nil, err
	}
	if len(reply) > mostPrivate {
		return nil, fmt.Errorf("shm: %d bytes to answer, at most %d fit", len(reply), mostPrivate)
	}
	a, f, err := newArea()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := answer{private: reply}
	var mine *probe
	if r.flags&wantReach != 0 && p.wantsReach(pid, uid) {
		mine = newProbe()
		h.flags, h.address, h.probe = flag(try(pid, r.address, r.probe[:]), canRead), mine.address(), *mine
	}
	var last byte
	if err = openDoorbell(conn, a, 1); err == nil {
		err = sendFile(conn, h.append(nil), f)
	}
	if err == nil {
		last, err = p.lastByte(conn)
	}
	runtime.KeepAlive(mine)
	if err != nil {
		a.unmap()
		return nil, err
	}
	l := &link{
		conn: conn, area: a, way: 1, pid: pid, uid: uid, reach: h.flags&last&canRead != 0, zeroCopy: p.cfg.ZeroCopy,
		id: token, pool: &p.links,
	}
	return l.begin(p.cfg, ord)
}

// wantsReach reports that this end wants reach with the peer.
func (p *place) wantsReach(pid, uid int) bool { return p.cfg.ZeroCopy && reachable(pid, uid) }

// sendFile writes b, and the descriptor with its first byte.
func sendFile(conn *net.UnixConn, b []byte, f *os.File) error {
	n, _, err := conn.WriteMsgUnix(b, unix.UnixRights(int(f.Fd())), nil)
	if err == nil && n < len(b) {
		_, err = conn.Write(b[n:])
	}
	return err
}

// lastByte returns the byte with which the peer ends the opening of the channel.
func (p *place) lastByte(conn *net.UnixConn) (byte, error) {
	var last [1]byte
	err := readBytes(conn, last[:])
	if errors.Is(err, os.ErrDeadlineExceeded) && !p.over() {
		// The peer is through with its byte. A machine that has stood still finds
		// that its time is over before it finds what has come.
		conn.SetReadDeadline(time.Now().Add(lastLook))
		err = readBytes(conn, last[:])
	}
	return last[0], err
}

// turnAway tells a peer whose invitation is not known why there will be no channel.
func turnAway(conn *net.UnixConn, why error) {
	c := challenge{flags: refused, text: reason(why)}
	conn.Write(c.append(nil))
}

// refuse tells a peer that was challenged why there will be no channel.
func refuse(conn *net.UnixConn, why error) {
	h := answer{flags: refused, private: reason(why)}
	conn.Write(h.append(nil))
}
