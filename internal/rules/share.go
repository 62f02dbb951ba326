package rules

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// A Share is one statement "share": programs of these users may share memory with the program.
type Share struct {
	Line    int
	Program string // a pattern with * and ?
	Users   []User
}

// A User is a user in a Share.
type User struct {
	Name string // "": the file has the number
	UID  int
}

// String returns the user as a file has it.
func (u User) String() string {
	if u.Name != "" {
		return u.Name
	}
	return strconv.Itoa(u.UID)
}

// String returns the statement as a file has it.
func (h *Share) String() string {
	text := "share " + h.Program + " with"
	for _, u := range h.Users {
		text += " " + u.String()
	}
	return text
}

// UIDs returns the numbers of the users in all statements "share", whatever the program is; nil: there is no
// such statement.
func (s *Set) UIDs() (uids []int) {
	for _, h := range s.Shares {
		for _, u := range h.Users {
			uids = append(uids, u.UID)
		}
	}
	return uids
}

const shareForm = "share PROGRAM with USER ..."

// parseShare parses the words after share. find returns the number of the user with a name.
func parseShare(w []string, find func(name string) (int, error)) (h Share, err error) {
	if len(w) < 3 || w[1] != "with" {
		return h, fmt.Errorf("want %s", shareForm)
	}
	if h.Program, err = parseProgram(w[0]); err != nil {
		return h, err
	}
	for _, word := range w[2:] {
		var u User
		if n, err := strconv.ParseUint(word, 10, 32); err == nil {
			u.UID = int(n)
		} else if u.UID, err = find(word); err == nil {
			u.Name = word
		} else {
			return h, fmt.Errorf("user %s: %w", quote(word), err)
		}
		h.Users = append(h.Users, u)
	}
	return h, nil
}

// passwd is the file with this machine's users. Tests replace it.
var passwd = "/etc/passwd"

// maxPasswd limits how much of passwd is read.
const maxPasswd = 16 << 20

// findUser returns the number of a user of this machine. It reads the file itself: package os/user uses cgo,
// and would add it to programs that "sdp go" builds.
func findUser(name string) (int, error) {
	f, err := os.Open(passwd)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPasswd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(line, ":")
		if len(fields) < 3 || fields[0] != name {
			continue
		}
		n, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			return 0, errors.New("malformed line in " + passwd)
		}
		return int(n), nil
	}
	return 0, errors.New("not in " + passwd + "; want a name from there, or a number")
}
