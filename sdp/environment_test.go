package sdp

import "github.com/gosdp/gosdp/internal/policy"

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

const haveSHM = policy.HaveSHM

const (
	devicePlain = "tcp" // alone in a list of devices switches SDP off
	deviceSHM   = "shm"
)
