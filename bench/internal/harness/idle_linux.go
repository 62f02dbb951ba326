package harness

import "github.com/gosdp/gosdp/rdma/shm"

// closeIdle closes the shm channels that are kept for the next dial.
func closeIdle() { shm.CloseIdle() }
