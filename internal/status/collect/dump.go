package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gosdp/gosdp/internal/status"
)

// dumpPatience is how long Dump waits for the program to begin.
const dumpPatience = 5 * time.Second

// maxAnswer is the length of the longest line with which a program answers.
const maxAnswer = 1024

// Dump asks the process, whose socket is in one of the directories, for a dump with these
// options. What the connection returns is a file of pcapng. The dump ends when the caller ends
// what it sends (CloseWrite); the file is complete at io.EOF.
func Dump(dirs []string, pid int, options string) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dumpPatience)
	defer cancel()
	sockets, _ := find(dirs)
	defer func() {
		for _, s := range sockets {
			s.dir.Close()
		}
	}()
	last := errors.New("it does not run, or does not serve its status (SDP_STATUS=1)")
	for _, s := range sockets {
		name, _, _ := strings.Cut(filepath.Base(s.path), "-")
		if name != strconv.Itoa(pid) {
			continue
		}
		c, is, err := s.dial(ctx)
		if err == nil && is != 0 && is != pid {
			c.Close()
			err = fmt.Errorf("%s is served by the process %d", s.path, is)
		}
		if err != nil {
			last = err
			continue
		}
		if err := request(c, options); err != nil {
			c.Close()
			return nil, err
		}
		c.SetDeadline(time.Time{})
		return c, nil
	}
	return nil, last
}

// request asks for a dump and reads the program's answer.
func request(c io.ReadWriter, options string) error {
	if _, err := io.WriteString(c, status.CommandDump+" "+options+"\n"); err != nil {
		return err
	}
	// Byte by byte, because the file follows.
	var line []byte
	var b [1]byte
	for len(line) < maxAnswer {
		if _, err := io.ReadFull(c, b[:]); err == io.EOF {
			return errors.New("the program gave no answer")
		} else if err != nil {
			return slow(err)
		}
		if b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	if string(line) != "ok" {
		return errors.New(short(string(line)))
	}
	return nil
}
