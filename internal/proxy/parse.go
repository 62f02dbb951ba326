package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/gosdp/gosdp/internal/units"
)

// maxConfig limits the size of the file, because a mistyped path may name any file.
const maxConfig = 1 << 20

// A LineError is an error in one line of a file.
type LineError struct {
	File string
	Line int
	Err  error
}

// Error returns "relays.conf:3: " and what is wrong.
func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap returns e.Err.
func (e *LineError) Unwrap() error { return e.Err }

// ReadFile reads routes from a regular file. defaults are the options that a line does not set. The
// error names every line that is wrong.
func ReadFile(path string, defaults Options) ([]Route, error) {
	// Opening a device can have an effect, so what the path stands for is checked before and after.
	info, err := os.Stat(path)
	if err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|nonblocking, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, err
	}
	return Parse(f, path, defaults)
}

// regular returns an error if a file is not a regular one. Reading another may never end.
func regular(path string, info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", path)
	}
	return nil
}

// Parse acts like ReadFile but reads from r. It uses path in errors.
func Parse(r io.Reader, path string, defaults Options) ([]Route, error) {
	var routes []Route
	var wrong []error
	limited := &io.LimitedReader{R: r, N: maxConfig + 1}
	lines := bufio.NewScanner(limited)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		route, err := parseRoute(fields, defaults)
		if err == nil {
			err = clash(routes, route)
		}
		if err != nil {
			wrong = append(wrong, &LineError{path, n, err})
			continue
		}
		route.Line = n
		routes = append(routes, route)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if limited.N == 0 {
		return nil, fmt.Errorf("%s: longer than %d bytes", path, maxConfig)
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	if len(routes) == 0 {
		return nil, fmt.Errorf("%s: no routes", path)
	}
	return routes, nil
}

// clash returns an error if one of the routes listens at the same address as route.
func clash(routes []Route, route Route) error {
	for _, other := range routes {
		if other.Listen.Clashes(route.Listen) {
			return fmt.Errorf("address already in use by line %d: %s", other.Line, route.Listen.Address)
		}
	}
	return nil
}

// Clashes reports whether a proxy cannot listen at both endpoints: they have one address, and not one
// for which the kernel chooses the port.
func (e Endpoint) Clashes(other Endpoint) bool {
	return e.Address == other.Address && !strings.HasSuffix(e.Address, ":0")
}

func parseRoute(fields []string, defaults Options) (Route, error) {
	if len(fields) < 2 {
		return Route{}, errors.New("want where to listen and where to dial, such as: tcp://127.0.0.1:5432 sdp://db:7000")
	}
	listen, err := ParseListen(fields[0])
	if err != nil {
		return Route{}, err
	}
	dial, err := ParseDial(fields[1])
	if err != nil {
		return Route{}, err
	}
	route := Route{Listen: listen, Dial: dial, Options: defaults}
	for _, field := range fields[2:] {
		if err := route.set(field); err != nil {
			return Route{}, err
		}
	}
	return route, nil
}

// set sets an option from field, "name=value".
func (o *Options) set(field string) error {
	name, value, ok := strings.Cut(field, "=")
	if !ok {
		return fmt.Errorf("invalid option %q: want name=value", field)
	}
	switch name {
	case "limit":
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return fmt.Errorf("limit=%s: want a number of connections", value)
		}
		o.Limit = int(n)
	case "dial-timeout":
		d, err := units.Time(value)
		if err != nil || d <= 0 {
			return fmt.Errorf("dial-timeout=%s: want a time, such as 10s", value)
		}
		o.DialTimeout = d
	case "mark":
		n, err := strconv.ParseUint(value, 0, 32)
		if err != nil {
			return fmt.Errorf("mark=%s: want a number below 2^32, such as 0x5d9", value)
		}
		o.Mark = uint32(n)
	default:
		return fmt.Errorf("unknown option %q: there are limit, dial-timeout and mark", name)
	}
	return nil
}
