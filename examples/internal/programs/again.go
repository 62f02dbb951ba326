package programs

// attempts bounds Again.
const attempts = 5

// Again calls f until it reports that what was to come over SDP has done so, a few
// times at most. On a busy machine a server may answer too late, and the connection is
// plain TCP, which is right (sdp.Config.ReplyTimeout).
func Again(f func() bool) {
	for range attempts {
		if f() {
			return
		}
	}
}
