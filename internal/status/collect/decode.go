package collect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gosdp/gosdp/internal/status"
)

// decodeTime is how long Collect decodes answers, all together. Tests change it.
var decodeTime = 2 * time.Second

const (
	// maxConns is how many connections of a program are read.
	maxConns = 20_000
	// maxText bounds a name or a reason, because a table is as wide as its longest one.
	maxText = 256
)

var errLong = errors.New("there was no time to read the answer")

// inTurns returns the answers in the order in which they are decoded: one of each directory in
// turn, the shortest first, so that long answers of one user do not use up the time of others.
func inTurns(visits []*visit) (all []answer) {
	for _, v := range visits {
		slices.SortFunc(v.answers, func(a, b answer) int { return cmp.Compare(len(a.text), len(b.text)) })
	}
	for turn, more := 0, true; more; turn++ {
		more = false
		for _, v := range visits {
			if turn < len(v.answers) {
				all, more = append(all, v.answers[turn]), true
			}
		}
	}
	return all
}

func (a answer) decode(until time.Time) (status.Program, error) {
	if a.err != nil {
		return status.Program{}, a.err
	}
	p, err := decode(a.text, until)
	switch {
	case errors.Is(err, errLong):
		return status.Program{}, err
	case err != nil:
		return status.Program{}, fmt.Errorf("the answer makes no sense: %w", err)
	}
	if a.pid != 0 {
		p.PID = a.pid // which the kernel says
	}
	p.UID = a.socket.dir.owner
	return p, nil
}

// decode reads a Program. It limits how much memory a short text can use.
func decode(text []byte, until time.Time) (status.Program, error) {
	if time.Now().After(until) {
		return status.Program{}, errLong
	}
	var p struct {
		status.Program
		Conns conns `json:"connections"`
	}
	p.Conns.until = until
	if err := json.Unmarshal(text, &p); err != nil {
		return status.Program{}, err
	}
	if p.Version != status.Version {
		return status.Program{}, fmt.Errorf("its version is %d, and this tool reads %d", p.Version, status.Version)
	}
	p.Name = short(p.Name)
	p.Program.Conns = p.Conns.list
	return p.Program, nil
}

// short returns the beginning of a long text.
func short(text string) string { return text[:min(len(text), maxText)] }

// conns decodes connections one after the other.
type conns struct {
	list  status.Conns
	until time.Time
}

func (c *conns) UnmarshalJSON(text []byte) error {
	c.list = nil
	d := json.NewDecoder(bytes.NewReader(text))
	if start, err := d.Token(); err != nil || start != json.Delim('[') {
		return errors.New("connections: not a list")
	}
	for d.More() {
		if len(c.list) == maxConns {
			return fmt.Errorf("more than %d connections", maxConns)
		}
		if time.Now().After(c.until) {
			return errLong
		}
		var one status.Conn
		if err := d.Decode(&one); err != nil {
			return err
		}
		for _, text := range []*string{&one.Local, &one.Remote, &one.Device, &one.Mode} {
			*text = short(*text)
		}
		for device, why := range one.Declined {
			one.Declined[device] = short(why)
		}
		c.list = append(c.list, one)
	}
	return nil
}
