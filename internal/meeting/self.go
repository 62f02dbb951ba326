package meeting

// TestSelf lets both ends be in one process. Tests set it.
var TestSelf bool
