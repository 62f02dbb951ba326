package programs

// attempts bounds Again.
const attempts = 5

// Again calls f until it reports that what was to come over SDP has done so, a few
// times at most. On a busy machine a client may show too late that it speaks SDP,
// and is served over plain TCP, which is right (sdp.Config.LookTime).
func Again(f func() bool) {
	for range attempts {
		if f() {
			return
		}
	}
}
