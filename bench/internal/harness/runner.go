package harness

import "time"

// A Runner takes turns of about the same length.
type Runner struct {
	*Pair
	turn     time.Duration
	messages int // in a turn
	fixed    bool
}

// NewRunner finds out how many messages fill a turn. This also warms the connection up.
func NewRunner(pair *Pair, turn time.Duration) (*Runner, error) {
	r := &Runner{Pair: pair, turn: turn, messages: 1}
	if n, ok := pair.load.idleTurn(turn); ok {
		r.messages, r.fixed = n, true
		_, err := pair.Run(1)
		return r, err
	}
	for long := 0; ; r.messages *= 2 {
		t, err := pair.Run(r.messages)
		if err != nil {
			return nil, err
		}
		// A quarter of a turn is long enough to extrapolate from. Two in a row are
		// required, because something else may have slowed one of them down.
		if long++; t.Took < turn/4 {
			long = 0
		}
		if long == 2 || t.Took >= turn {
			r.aim(t, 0)
			return r, nil
		}
	}
}

// Turn takes one turn.
func (r *Runner) Turn() (Turn, error) {
	t, err := r.Run(r.messages)
	if err == nil && !r.fixed {
		r.aim(t, 0.5) // one slow turn must not make the next one much too short
	}
	return t, err
}

// aim sets the number of messages of the next turn so that it takes the wanted
// time at the speed of t. The number is at least that of t times least.
func (r *Runner) aim(t Turn, least float64) {
	factor := max(r.turn.Seconds()/t.Took.Seconds(), least)
	r.messages = max(1, int(float64(t.Messages)*factor))
}
