package sdp

import _ "github.com/gosdp/gosdp/rdma/shm" // where two ends share a host
