package collect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gosdp/gosdp/internal/status"
)

// decodeTime is how long Collect decodes answers, all together. Tests change it.
var decodeTime = 2 * time.Second

const (
	// maxConns is how many connections of a program are read, maxUserConns of all programs of a
	// directory, and maxAllConns of all directories.
	maxConns     = 20_000
	maxUserConns = 40_000
	maxAllConns  = 100_000
	// maxText bounds a name or a reason, because a table is as wide as its longest one.
	maxText = 256
	// maxDeclined is how many devices a connection may name that it does not use, maxPinned how
	// many RDMA devices a program may name, and maxKey the length of such a name.
	maxDeclined = 8
	maxPinned   = 64
	maxKey      = 64
)

var (
	errLong = errors.New("decoding of the answer timed out")
	errMany = errors.New("too many connections in total")
)

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

// decodeAll decodes answers one after the other. It drops each text when it has been decoded.
func decodeAll(answers []answer) (programs []status.Program, failures []Failure) {
	until := time.Now().Add(decodeTime)
	left := maxAllConns
	leftOfUser := make(map[*directory]int)
	for i := range answers {
		a := &answers[i]
		dir := a.socket.dir
		if _, seen := leftOfUser[dir]; !seen {
			leftOfUser[dir] = maxUserConns
		}
		p, err := a.decode(min(maxConns, left, leftOfUser[dir]), until)
		a.text = nil
		if err != nil {
			failures = append(failures, Failure{a.socket.path(), err})
			continue
		}
		left -= len(p.Conns)
		leftOfUser[dir] -= len(p.Conns)
		programs = append(programs, p)
	}
	return programs, failures
}

// decode decodes one answer with at most limit connections.
func (a *answer) decode(limit int, until time.Time) (status.Program, error) {
	if a.err != nil {
		return status.Program{}, a.err
	}
	p, err := decode(a.text, limit, until)
	switch {
	case errors.Is(err, errLong), errors.Is(err, errMany):
		return status.Program{}, err
	case err != nil:
		return status.Program{}, fmt.Errorf("malformed answer: %w", err)
	}
	if a.pid != 0 {
		p.PID = a.pid // which the kernel says
	}
	p.UID = a.socket.dir.owner
	return p, nil
}

// decode reads a Program. It limits how much memory a short text can use.
func decode(text []byte, limit int, until time.Time) (status.Program, error) {
	if time.Now().After(until) {
		return status.Program{}, errLong
	}
	var p struct {
		status.Program
		Pinned pinned `json:"pinned"`
		Conns  conns  `json:"connections"`
	}
	p.Conns = conns{list: status.Conns{}, limit: limit, until: until}
	if err := json.Unmarshal(text, &p); err != nil {
		return status.Program{}, err
	}
	if p.Version != status.Version {
		return status.Program{}, fmt.Errorf("unsupported status version %d, this tool reads %d", p.Version, status.Version)
	}
	p.Name = short(p.Name, maxText)
	p.Program.Pinned = p.Pinned
	p.Program.Conns = p.Conns.list
	return p.Program, nil
}

// short returns the beginning of a long text, without keeping all of it.
func short(text string, limit int) string {
	if len(text) > limit {
		return strings.Clone(text[:limit])
	}
	return text
}

// conns decodes connections one after the other.
type conns struct {
	list  status.Conns
	limit int
	until time.Time
}

func (c *conns) UnmarshalJSON(text []byte) error {
	c.list = status.Conns{}
	d := json.NewDecoder(bytes.NewReader(text))
	if start, err := d.Token(); err != nil || start != json.Delim('[') {
		return errors.New("connections: not a list")
	}
	for d.More() {
		switch {
		case len(c.list) == maxConns:
			return fmt.Errorf("more than %d connections", maxConns)
		case len(c.list) == c.limit:
			return errMany
		case time.Now().After(c.until):
			return errLong
		}
		var one struct {
			status.Conn
			Declined declined `json:"declined"`
		}
		if err := d.Decode(&one); err != nil {
			return err
		}
		one.Conn.Declined = one.Declined
		for _, text := range []*string{&one.Local, &one.Remote, &one.Device, &one.Mode} {
			*text = short(*text, maxText)
		}
		c.list = append(c.list, one.Conn)
	}
	return nil
}

// declined decodes the reasons why devices are not used.
type declined map[string]string

func (m *declined) UnmarshalJSON(text []byte) (err error) {
	*m, err = decodeMap[string](text, maxDeclined)
	for device, why := range *m {
		(*m)[device] = short(why, maxText)
	}
	return err
}

// pinned decodes how many bytes are locked in memory, by RDMA device.
type pinned map[string]int64

func (m *pinned) UnmarshalJSON(text []byte) (err error) {
	*m, err = decodeMap[int64](text, maxPinned)
	return err
}

// decodeMap decodes an object of at most limit members. A longer one is an error, and not read to
// its end.
func decodeMap[V any](text []byte, limit int) (map[string]V, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	start, err := d.Token()
	switch {
	case err != nil || start == nil: // null
		return nil, err
	case start != json.Delim('{'):
		return nil, errors.New("not an object")
	}
	m := make(map[string]V)
	for n := 0; d.More(); n++ {
		if n == limit {
			return nil, fmt.Errorf("more than %d devices", limit)
		}
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value V
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		m[short(key.(string), maxKey)] = value
	}
	return m, nil
}
