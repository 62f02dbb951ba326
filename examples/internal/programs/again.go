package programs

// attempts is the number of calls that Again makes at most.
const attempts = 5

// Again calls f until it returns true, a few times at most. f should report whether the
// connections used SDP: on a busy machine, a server may answer so late that the client
// correctly falls back to plain TCP (sdp.Config.ReplyTimeout).
func Again(f func() bool) {
	for range attempts {
		if f() {
			return
		}
	}
}
