// Package dissect verifies with Wireshark what this library sends. The tests capture their
// own traffic on the loopback interface. Wireshark's dissectors of MPA, DDP and RDMAP, which
// are independent of this library, must find in it what was sent.
//
//  1. capture.go records a port of the loopback interface with dumpcap.
//  2. tshark.go decodes the recording with tshark into a list of Frames.
//  3. The tests compare the Frames with the work requests and bytes of the two ends.
//
// Without tshark or the permission to capture, the tests are skipped, unless
// REQUIRE_DISSECT is set.
package dissect
