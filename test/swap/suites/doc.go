// Package suites runs test suites of other projects over TCP, shm and iwarp, and compares the
// results of each test. test/swap makes them use SDP.
//
// The test is skipped unless GOSDP_SUITES is set: 1 means all suites, otherwise it is a list
// of names, such as xnet,grpc. The suites are downloaded as modules.
//
//	GOSDP_SUITES=1 go test -v -timeout 2h ./test/swap/suites
//
// A difference is a test that passes or is skipped over TCP, and has another outcome on a device.
// known.json lists known differences with reasons. The test fails if a difference is not listed, or if a listed
// test passes on the device.
package suites
