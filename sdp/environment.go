package sdp

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/budget"
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

// variables are those that settings depend on.
var variables = [...]string{devicesVariable, thresholdVariable, peersVariable, busyPollVariable, memoryVariable, shmDirVariable, usersVariable, handshakeVariable}

// environment returns the values of variables.
func environment() (values [len(variables)]string) {
	for i, name := range variables {
		values[i] = getenv(name)
	}
	return values
}

// secure is privileged, once.
var secure = sync.OnceValue(privileged)

// getenv returns a variable of the environment, and "" in a program that has more rights than
// its caller, who set the environment.
func getenv(name string) string {
	if secure() {
		return ""
	}
	return os.Getenv(name)
}

// threshold returns the length up to which a Write is copied. 0 leaves it to the device.
func (c *Config) threshold() (int, error) {
	environment := 0
	if text := getenv(thresholdVariable); text != "" {
		var err error
		if environment, err = strconv.Atoi(text); err != nil {
			return 0, fmt.Errorf("%s=%s: not a number of bytes", thresholdVariable, text)
		}
	}
	if c != nil && c.ZCopyThreshold != 0 {
		return c.ZCopyThreshold, nil
	}
	return environment, nil
}

// busyPoll returns for how long a wait polls before it parks: not at all if it is negative,
// and as long as it pays if it is 0.
func (c *Config) busyPoll() (time.Duration, error) {
	var environment time.Duration
	if text := getenv(busyPollVariable); text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return 0, fmt.Errorf("%s=%s: not a number of microseconds", busyPollVariable, text)
		}
		environment = time.Duration(n) * time.Microsecond
		if n == 0 {
			environment = -1
		}
	}
	if c != nil && c.BusyPoll != 0 {
		return c.BusyPoll, nil
	}
	return environment, nil
}

// handshakeTimeout returns how long a listener waits for clients that may speak SDP.
func (c *Config) handshakeTimeout() (time.Duration, error) {
	limit := 5 * time.Second
	if text := getenv(handshakeVariable); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil || limit <= 0 {
			return 0, fmt.Errorf("%s=%s: not a time (such as 5s)", handshakeVariable, text)
		}
	}
	if c != nil && c.HandshakeTimeout != 0 {
		return c.HandshakeTimeout, nil
	}
	return limit, nil
}

// configuredMemory is the last Config.Memory; 0: none was set.
var configuredMemory struct {
	sync.Mutex
	bytes int64
}

// setMemory sets the budget of the process to what this Config or an earlier one says, or
// else to what the environment says, or else to the default.
func (c *Config) setMemory() error {
	limit := int64(0)
	if text := getenv(memoryVariable); text != "" {
		var ok bool
		if limit, ok = budget.Parse(text); !ok {
			return fmt.Errorf("%s=%s: not a number of bytes (such as 512M)", memoryVariable, text)
		}
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
