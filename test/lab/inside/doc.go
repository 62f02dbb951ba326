// Package inside has the tests that run inside the lab, as a program that test/lab
// puts there: SDP over the RDMA device whose address VERBS_ADDRESS names.
package inside
