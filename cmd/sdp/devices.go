package main

import _ "github.com/gosdp/gosdp/rdma/verbs" // RDMA hardware, where there is any
