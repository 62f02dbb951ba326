// Package inside has the tests that run inside the lab. test/lab builds and runs them. They
// test SDP over the RDMA device whose address is in VERBS_ADDRESS.
package inside
