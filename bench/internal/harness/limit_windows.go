package harness

// raiseFileLimit does nothing: Windows has no limit to raise.
func raiseFileLimit() {}
