package dump

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gosdp/gosdp/internal/units"
)

// DefaultSize is the size of a dump in bytes if none is given.
const DefaultSize = 64 << 20

// Options say what a dump contains and when it ends.
type Options struct {
	Conn  string        // only connections with this text in their description; "": all
	Size  int64         // bytes of the file
	Count int64         // packets; 0: any number
	For   time.Duration // from the beginning of the dump; 0: until it is stopped
}

// ParseOptions reads "conn=TEXT,size=64M,count=1000,for=30s". Each part may be left out.
func ParseOptions(text string) (Options, error) {
	o := Options{Size: DefaultSize}
	if text == "" {
		return o, nil
	}
	for _, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return o, fmt.Errorf("%q is not a dump option: want conn=, size=, count= or for=", part)
		}
		var err error
		switch name {
		case "conn":
			o.Conn = value
		case "size":
			o.Size, err = parseSize(value)
		case "count":
			o.Count, err = strconv.ParseInt(value, 10, 64)
			if err == nil && o.Count <= 0 {
				err = errors.New("must be positive")
			}
		case "for":
			o.For, err = units.Time(value)
			if err == nil && o.For <= 0 {
				err = errors.New("must be positive")
			}
		default:
			err = errors.New("unknown option")
		}
		if err != nil {
			return o, fmt.Errorf("%s=%s: %w", name, value, err)
		}
	}
	return o, nil
}

// String returns the options in the form that ParseOptions reads.
func (o Options) String() string {
	text := "size=" + strconv.FormatInt(o.Size, 10)
	if o.Count > 0 {
		text += ",count=" + strconv.FormatInt(o.Count, 10)
	}
	if o.For > 0 {
		text += ",for=" + o.For.String()
	}
	if o.Conn != "" {
		text += ",conn=" + o.Conn
	}
	return text
}

// leastSize has room for the beginning and the end of a file. maxSize keeps sums of sizes from
// overflowing.
const (
	leastSize = 4 << 10
	maxSize   = 1 << 60
)

// parseSize reads the size of a dump, such as 64M.
func parseSize(text string) (int64, error) {
	n, err := units.Bytes(text)
	switch {
	case err != nil:
		return 0, err
	case n > maxSize:
		return 0, fmt.Errorf("want at most %d bytes", int64(maxSize))
	case n < leastSize:
		return 0, fmt.Errorf("want at least %d bytes", leastSize)
	}
	return n, nil
}

// Path replaces "%p" in the path of a dump by the number of the process that is dumped.
func Path(path string, pid int) string {
	return strings.ReplaceAll(path, "%p", strconv.Itoa(pid))
}

// Create makes the file of a dump, which only this user can read because it holds what the
// program sends. An existing file or link is refused, because another user may have put it there.
func Create(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}
