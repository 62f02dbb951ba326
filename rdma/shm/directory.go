//go:build linux

package shm

import (
	"errors"
	"fmt"

	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma"
)

// meetingDir is a directory in which ends in different network namespaces meet. The client's
// socket is a file there, whose name is in the ticket, and not an abstract
// one. Everything else is as in one network namespace.
type meetingDir struct{ dir *shmdir.Dir }

// openMeetingDir returns nil if there is no directory.
func openMeetingDir(path string) (*meetingDir, error) {
	if path == "" {
		return nil, nil
	}
	dir, err := shmdir.Open(path)
	if err != nil {
		return nil, fmt.Errorf("shm: directory %s: %w", path, err)
	}
	return &meetingDir{dir}, nil
}

// meetingDirOf returns where the listener meets a peer; nil: in the network namespace.
func meetingDirOf(p *rdma.Peer, path string) (*meetingDir, error) {
	switch {
	case !p.InDir:
		return nil, nil
	case path == "":
		return nil, errors.New("shm: peer uses a rendezvous directory, but none is configured")
	}
	return openMeetingDir(path)
}

// bind binds the client's socket, listens, and completes the ticket.
func (m *meetingDir) bind(fd int, t *rdma.Ticket, uids []int) error {
	name, err := m.dir.Bind(fd, backlog, len(uids) > 0, func(stranger int) { closeAside(files{stranger}) })
	copy(t[tokenLen:][:nameLen], name[:])
	return err
}

// connect connects the server's socket to the client's.
func (m *meetingDir) connect(fd int, t *rdma.Ticket) error {
	return m.dir.Connect(fd, shmdir.Name(t[tokenLen:][:nameLen]))
}

// remove removes the client's file.
func (m *meetingDir) remove(t *rdma.Ticket) { m.dir.Remove(shmdir.Name(t[tokenLen:][:nameLen])) }
