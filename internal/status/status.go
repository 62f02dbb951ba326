// Package status passes the state of a program's connections to the tool sdp, over a Unix
// socket in a directory that only the program's user can enter.
//
// A client connects and sends a line with a command. For "status" the program writes a [Program]
// as JSON and closes; a client that sends nothing gets that after a moment. For "dump OPTIONS" it
// writes a line that is "ok", or says why not, and then a file of pcapng (package dump). This
// package is the program's half; package collect is the tool's.
package status

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// The commands of a client.
const (
	CommandStatus = "status"
	CommandDump   = "dump"
)

// maxCommand is the length of the longest command with its newline.
const maxCommand = 1024

// Version is the version of the document. It changes when a field changes its meaning or is
// removed, and not when one is added.
const Version = 1

// A Program is the state of one process. Its JSON is described in docs/operations.md.
type Program struct {
	Version int `json:"version"`

	PID  int       `json:"pid"`
	Name string    `json:"name"`
	UID  int       `json:"uid"`
	Time time.Time `json:"time"` // when this was

	Open        int    `json:"open"`
	Opened      uint64 `json:"opened"`
	Closing     int    `json:"closing"`
	Memory      int64  `json:"memory"`       // bytes promised to peers
	MemoryLimit int64  `json:"memory_limit"` // that may be promised

	// PlainDials and PlainAccepts count the connections of package net so far, by reason.
	PlainDials   map[string]uint64 `json:"plain_dials"`
	PlainAccepts map[string]uint64 `json:"plain_accepts"`

	// Pinned is how many bytes are locked in memory, by RDMA device.
	Pinned map[string]int64 `json:"pinned,omitempty"`

	// Conns has at most MaxListed connections, and Write writes only as many as fit into
	// MaxDocument. Open is how many there are.
	Conns Conns `json:"connections"`
}

// Conns are connections of one program.
type Conns []Conn

// MaxListed is how many connections a program lists.
const MaxListed = 10_000

// MaxDocument limits the bytes of a program's JSON. The tool reads no more.
const MaxDocument = 8 << 20

// A Conn is the state of one connection. Counters only grow.
type Conn struct {
	ID      uint64    `json:"id"` // unique in the process
	Local   string    `json:"local"`
	Remote  string    `json:"remote"`
	Device  string    `json:"device"`
	Dialled bool      `json:"dialled"` // by this end
	Closing bool      `json:"closing"` // closed, but still delivering
	Opened  time.Time `json:"opened"`

	OnTCP string `json:"on_tcp,omitempty"` // why a connection is on TCP that could be in shared memory
	Moves uint64 `json:"moves"`            // to shared memory, so far: one for each segment

	Sent      uint64 `json:"sent"` // bytes
	Received  uint64 `json:"received"`
	ZCopySent uint64 `json:"zcopy_sent"` // those of Sent that were not copied
	ZCopyRecv uint64 `json:"zcopy_received"`
	MsgSent   uint64 `json:"messages_sent"`
	MsgRecv   uint64 `json:"messages_received"`
	Stalls    uint64 `json:"stalls"` // Writes that waited for the peer to have room
	Unread    int    `json:"unread"` // bytes

	SendCredit int `json:"send_credit"` // messages that this end may send
	RecvCredit int `json:"recv_credit"` // messages that the peer may send
	Buffers    int `json:"buffers"`
	BufferSize int `json:"buffer_size"`

	Mode     string            `json:"mode"`     // socket, ring, bcopy or zcopy
	Declined map[string]string `json:"declined"` // why devices are not used
}

// DirName is the name of a user's directory, without the user's number.
const DirName = "sdp-status-"

// Dir returns the directory of the sockets of a user's programs: the value of SDP_STATUS if that is
// a path, and otherwise one below /run/user or /tmp.
func Dir(setting string, uid int) string {
	if filepath.IsAbs(setting) {
		return setting
	}
	name := DirName + strconv.Itoa(uid)
	if run := fmt.Sprintf("/run/user/%d", uid); Private(run, uid) == nil {
		return filepath.Join(run, name)
	}
	return filepath.Join("/tmp", name)
}

// Private returns nil if path is a directory, not a link, that belongs to the user and that no
// other user may enter.
func Private(path string, uid int) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return PrivateInfo(path, info, uid)
}

// PrivateInfo is Private for a file that has been examined already.
func PrivateInfo(path string, info os.FileInfo, uid int) error {
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", path)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is accessible to other users: its mode is %o and must be 700", path, info.Mode().Perm())
	}
	if owner, ok := Owner(info); !ok || owner != uid {
		return fmt.Errorf("%s is owned by user %d, not by %d", path, owner, uid)
	}
	return nil
}
