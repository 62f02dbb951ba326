package main

// A target is the ratio to the baseline that a contender must reach in a case.
type target struct {
	load, contender string
	bound           bound
	ratio           float64
}

// bound says on which side of its ratio a target is met.
type bound bool

const (
	atMost  bound = false
	atLeast bound = true
)

var targets = []target{
	{"rtt/64B", "iwarp", atMost, 1.15},
	{"stream/1MB", "iwarp", atLeast, 1.00},
	{"stream/1MB", "iwarp+crc", atLeast, 0.65},
	{"stream/64B", "iwarp", atLeast, 3.00},
}

func (t target) direction() string {
	if t.bound == atLeast {
		return "≥"
	}
	return "≤"
}

func (t target) outcome(ratio float64) string {
	met := ratio <= t.ratio
	if t.bound == atLeast {
		met = ratio >= t.ratio
	}
	if met {
		return "met"
	}
	return "not met"
}
