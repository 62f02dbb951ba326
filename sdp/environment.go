package sdp

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

	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/internal/environ"
	"github.com/gosdp/gosdp/internal/observe"
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
)

// moveVariable makes connections move at their first exchange ("at-once"), or move and come home at random
// ("at-random"), also if both ends are in one process. It is for tests.
const moveVariable = "SDP_MOVE"

// variables are those that settings depend on.
var variables = [...]string{devicesVariable, thresholdVariable, peersVariable, busyPollVariable, memoryVariable, shmDirVariable, usersVariable, handshakeVariable}

// environment returns the values of variables.
func environment() (values [len(variables)]string) {
	for i, name := range variables {
		values[i] = getenv(name)
	}
	return values
}

// otherVariables are those of the library and of its tool that are not in variables.
var otherVariables = [...]string{configVariable, observe.StatusVariable, observe.DumpVariable, moveVariable, "SDP_REPORT", "SDP_GOCACHE"}

// unknown are the names in the environment that look like the library's and are not, such as SDP_DEVICE.
var unknown = sync.OnceValue(func() []string {
	if !environ.Secure() {
		return unknownIn(os.Environ())
	}
	return nil
})

func unknownIn(environment []string) (names []string) {
	for _, one := range environment {
		name, _, _ := strings.Cut(one, "=")
		switch {
		case !strings.HasPrefix(name, "SDP_"):
		case slices.Contains(variables[:], name), slices.Contains(otherVariables[:], name):
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
		observe.Complain(log, name, "sdp: environment variable ignored", errUnknown)
	}
}

var errUnknown = errors.New("unknown name")

// getenv returns a variable of the environment; see [environ.Get].
func getenv(name string) string { return environ.Get(name) }

// bytesOf returns the number of bytes in a variable of the environment; 0: it is not set.
func bytesOf(variable string) (int64, error) {
	text := getenv(variable)
	if text == "" {
		return 0, nil
	}
	n, err := units.Bytes(text)
	if err != nil {
		return 0, fmt.Errorf("%s=%s: %w", variable, text, err)
	}
	return n, nil
}

// timeOf returns the time in a variable of the environment, which must not be negative, and whether it is set.
func timeOf(variable string) (d time.Duration, set bool, err error) {
	text := getenv(variable)
	if text == "" {
		return 0, false, nil
	}
	if d, err = units.Time(text); err == nil && d < 0 {
		err = errors.New("must not be negative")
	}
	if err != nil {
		return 0, false, fmt.Errorf("%s=%s: %w", variable, text, err)
	}
	return d, true, nil
}

// threshold returns the length up to which a Write is copied. 0 leaves it to the device.
func (c *Config) threshold() (int, error) {
	environment, err := bytesOf(thresholdVariable)
	if err != nil {
		return 0, err
	}
	if c != nil && c.ZCopyThreshold != 0 {
		return c.ZCopyThreshold, nil
	}
	return int(max(math.MinInt, min(environment, math.MaxInt))), nil
}

// busyPoll returns for how long a wait polls before it parks: not at all if it is negative,
// and as long as it pays if it is 0.
func (c *Config) busyPoll() (time.Duration, error) {
	environment, set, err := timeOf(busyPollVariable)
	switch {
	case err != nil:
		return 0, err
	case c != nil && c.BusyPoll != 0:
		return c.BusyPoll, nil
	case set && environment == 0:
		return -1, nil
	}
	return environment, nil
}

// handshakeTimeout returns how long a listener waits for clients that may speak SDP.
func (c *Config) handshakeTimeout() (time.Duration, error) {
	limit, set, err := timeOf(handshakeVariable)
	switch {
	case err != nil:
		return 0, err
	case set && limit == 0:
		return 0, fmt.Errorf("%s=%s: must be positive", handshakeVariable, getenv(handshakeVariable))
	case c != nil && c.HandshakeTimeout != 0:
		return c.HandshakeTimeout, nil
	case !set:
		return 5 * time.Second, nil
	}
	return limit, nil
}

// leastMemory is the least budget that SDP_MEMORY may set. A smaller one is a missing unit.
const leastMemory = 64 << 10

// configuredMemory is the last Config.Memory; 0: none was set.
var configuredMemory struct {
	sync.Mutex
	bytes int64
}

// setMemory sets the budget of the process to what this Config or an earlier one says, or
// else to what the environment says, or else to the default.
func (c *Config) setMemory() error {
	limit, err := bytesOf(memoryVariable)
	if err != nil {
		return err
	}
	if text := getenv(memoryVariable); text != "" && limit < leastMemory {
		return fmt.Errorf("%s=%s: must be at least %dK", memoryVariable, text, leastMemory>>10)
	}
	configuredMemory.Lock()
	defer configuredMemory.Unlock()
	if c != nil && c.Memory > 0 {
		configuredMemory.bytes = c.Memory
	}
	if n := configuredMemory.bytes; n > 0 {
		limit = n
	}
	budget.Process.SetLimit(limit)
	return nil
}

// probe returns the addresses that may be asked; nil: neither the program nor the environment
// lists any.
func (c *Config) probe() ([]netip.Prefix, error) {
	environment, err := prefixesOf(peersVariable)
	if err == nil && c != nil && c.Probe != nil {
		return c.Probe, nil
	}
	return environment, err
}

// peerUIDs returns the users, besides the program's own, whose programs may share memory with it.
func (c *Config) peerUIDs() (uids []int, err error) {
	if text := getenv(usersVariable); text != "" {
		for _, one := range strings.Split(text, ",") {
			uid, err := strconv.ParseUint(strings.TrimSpace(one), 10, 32)
			if err != nil {
				return nil, fmt.Errorf("%s=%s: %q is not the number of a user", usersVariable, text, one)
			}
			uids = append(uids, int(uid))
		}
	}
	if c != nil && c.PeerUIDs != nil {
		return c.PeerUIDs, nil
	}
	if f := operator(); f != nil && f.set != nil && len(f.set.Shares) > 0 {
		return f.set.UIDs(), nil
	}
	return uids, nil
}

// prefixesOf reads a list of prefixes from a variable of the environment; nil: it is not set.
func prefixesOf(variable string) (all []netip.Prefix, err error) {
	text := getenv(variable)
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
