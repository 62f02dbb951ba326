// Package dissect has what this library sends read by somebody else: the tests
// capture their own traffic on the loopback interface, and Wireshark's
// dissectors of MPA, DDP and RDMAP, which know nothing of this library, must find
// in it what was sent.
//
//  1. capture.go has dumpcap record what passes a port of the loopback interface.
//  2. tshark.go has tshark dissect that, and makes a list of Frames of it.
//  3. The tests compare the Frames with the work requests and the bytes that the
//     programs at the two ends had asked for.
//
// A machine without tshark, or without the right to capture, skips the tests,
// unless REQUIRE_DISSECT is set.
package dissect
