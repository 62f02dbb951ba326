package policy

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/timing"
	"github.com/gosdp/gosdp/internal/units"
)

// The environment's variables.
const (
	devicesVariable   = "SDP_DEVICES"
	thresholdVariable = "SDP_ZCOPY_THRESHOLD"
	peersVariable     = "SDP_PEERS"
	busyPollVariable  = "SDP_BUSY_POLL"
	memoryVariable    = "SDP_MEMORY"
	shmDirVariable    = "SDP_SHM_DIR"
	usersVariable     = "SDP_PEER_UIDS"
	handshakeVariable = "SDP_HANDSHAKE_TIMEOUT"
	configVariable    = "SDP_CONFIG"

	// StatusVariable makes the process serve its state to the tool sdp. Its value is "1" or the
	// directory of the socket.
	StatusVariable = "SDP_STATUS"
	// DumpVariable makes the process write what its connections carry to a file. Its value is the
	// file's path, which options may follow: "/tmp/dump-%p.pcapng,conn=:5432,size=64M". "off" forbids
	// the command "sdp dump".
	DumpVariable = "SDP_DUMP"
	// MoveVariable makes connections move at their first exchange ("at-once"), or move and come home at random
	// ("at-random"), also if both ends are in one process. It is for tests.
	MoveVariable = "SDP_MOVE"
)

// variables are those that a Policy depends on.
var variables = [...]string{devicesVariable, peersVariable, memoryVariable, thresholdVariable, busyPollVariable, shmDirVariable, usersVariable, handshakeVariable}

// Variables are all variables for operators.
var Variables = slices.Concat([]string{configVariable}, variables[:], []string{StatusVariable, DumpVariable})

// otherVariables are those of the library's tests and of its tool.
var otherVariables = [...]string{MoveVariable, "SDP_REPORT", "SDP_GOCACHE"}

// Environment has the values of variables. A Policy of the same options is the same while they are.
type Environment [len(variables)]string

// ReadEnvironment returns the present values.
func ReadEnvironment() (values Environment) {
	for i, name := range variables {
		values[i] = Getenv(name)
	}
	return values
}

// unknown are the names in the environment that look like the library's and are not, such as SDP_DEVICE.
var unknown = sync.OnceValue(func() []string {
	if Privileged() {
		return nil
	}
	return unknownIn(os.Environ())
})

func unknownIn(environment []string) (names []string) {
	for _, one := range environment {
		name, _, _ := strings.Cut(one, "=")
		switch {
		case !strings.HasPrefix(name, "SDP_"):
		case slices.Contains(Variables, name), slices.Contains(otherVariables[:], name):
		case strings.Contains(name, "_SERVICE_"), strings.Contains(name, "_PORT"): // Kubernetes' own, for a service named sdp
		default:
			names = append(names, name)
		}
	}
	return names
}

// nameUnknown reports variables that have no effect.
func nameUnknown(log *slog.Logger) {
	for _, name := range unknown() {
		events.Process.Complain(log, name, "sdp: environment variable ignored", errUnknown)
	}
}

var errUnknown = errors.New("unknown name")

// Privileged reports whether this program has more rights than its caller. Tests replace it.
var Privileged = sync.OnceValue(privileged)

// Getenv returns a variable of the environment, and "" in a program that has more rights than
// its caller, who set the environment.
func Getenv(name string) string {
	if Privileged() {
		return ""
	}
	return os.Getenv(name)
}

// bytesOf returns the number of bytes in a variable of the environment; 0: it is not set.
func bytesOf(variable string) (int64, error) {
	text := Getenv(variable)
	if text == "" {
		return 0, nil
	}
	n, err := units.Bytes(text)
	if err != nil {
		return 0, fmt.Errorf("%s=%s: %w", variable, text, err)
	}
	return n, nil
}

// timeOf returns the time in a variable of the environment, and whether it is set.
func timeOf(variable string) (d time.Duration, set bool, err error) {
	text := Getenv(variable)
	if text == "" {
		return 0, false, nil
	}
	if d, err = units.Time(text); err != nil {
		return 0, false, fmt.Errorf("%s=%s: %w", variable, text, err)
	}
	return d, true, nil
}

// threshold returns the length up to which a Write is copied. 0 leaves it to the device.
func (o *Options) threshold() (int, error) {
	environment, err := bytesOf(thresholdVariable)
	if err != nil {
		return 0, err
	}
	if o != nil && o.ZCopyThreshold != 0 {
		return o.ZCopyThreshold, nil
	}
	return int(max(math.MinInt, min(environment, math.MaxInt))), nil
}

// busyPoll returns for how long a wait polls before it parks: not at all if it is negative,
// and as long as it pays if it is 0.
func (o *Options) busyPoll() (time.Duration, error) {
	environment, _, err := timeOf(busyPollVariable)
	if err == nil && o != nil && o.BusyPoll != 0 {
		return o.BusyPoll, nil
	}
	return environment, err
}

// handshakeTimeout returns how long a listener waits for clients that may speak SDP.
func (o *Options) handshakeTimeout() (time.Duration, error) {
	limit, set, err := timeOf(handshakeVariable)
	switch {
	case err != nil:
		return 0, err
	case set && limit <= 0:
		return 0, fmt.Errorf("%s=%s: must be positive", handshakeVariable, Getenv(handshakeVariable))
	case o != nil && o.HandshakeTimeout != 0:
		return o.HandshakeTimeout, nil
	case !set:
		return timing.Handshake, nil
	}
	return limit, nil
}

// probe returns the addresses that may be asked; nil: neither the program nor the environment
// lists any.
func (o *Options) probe() ([]netip.Prefix, error) {
	environment, err := prefixesOf(peersVariable)
	if err == nil && o != nil && o.Probe != nil {
		return o.Probe, nil
	}
	return environment, err
}

// peerUIDs returns the users, besides the program's own, whose programs may share memory with it.
func (o *Options) peerUIDs() (uids []int, err error) {
	if text := Getenv(usersVariable); text != "" {
		for _, one := range strings.Split(text, ",") {
			uid, err := strconv.ParseUint(strings.TrimSpace(one), 10, 32)
			if err != nil {
				return nil, fmt.Errorf("%s=%s: %q is not the number of a user", usersVariable, text, one)
			}
			uids = append(uids, int(uid))
		}
	}
	if o != nil && o.PeerUIDs != nil {
		return o.PeerUIDs, nil
	}
	if f := operator(); f != nil && f.set != nil && len(f.set.Shares) > 0 {
		return f.set.UIDs(), nil
	}
	return uids, nil
}

// prefixesOf reads a list of prefixes from a variable of the environment; nil: it is not set.
func prefixesOf(variable string) (all []netip.Prefix, err error) {
	text := Getenv(variable)
	if text == "" {
		return nil, nil
	}
	for _, one := range strings.Split(text, ",") {
		p, err := parsePrefix(strings.TrimSpace(one))
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %q is neither an address nor a prefix", variable, text, one)
		}
		all = append(all, p)
	}
	return all, nil
}

// parsePrefix reads a prefix, or an address, which is one of itself.
func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.Prefix(a.BitLen())
	}
	return netip.ParsePrefix(text)
}
