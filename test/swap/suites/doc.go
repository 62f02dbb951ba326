// Package suites runs test suites that others have written over TCP, shm and
// iwarp, and compares the results of their tests by name. Test/swap puts SDP
// under them.
//
// Its test is skipped unless GOSDP_SUITES asks for it: 1 for all suites, or a
// list of names, such as xnet,grpc. The suites are downloaded as modules.
//
//	GOSDP_SUITES=1 go test -v -timeout 2h ./test/swap/suites
//
// A test that passes over TCP, and fails or does not end on a device, is a
// difference. The differences that are known stand in known.json, each with its
// reason. The test fails if there is a difference that is not in that file, or if
// one in the file has not occurred although its test has passed.
package suites
