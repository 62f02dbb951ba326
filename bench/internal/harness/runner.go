package harness

import "time"

// A Runner takes turns of about the same length.
type Runner struct {
	*Pair
	turn     time.Duration
	messages int // that fill a turn
	fixed    bool
}

// NewRunner finds how many messages fill a turn, which warms the connection up.
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
		// A quarter of a turn is long enough to foretell the rest, twice in a row:
		// once may have been something else's doing.
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
		r.aim(t, 0.5) // one slow turn does not make the next one a short one
	}
	return t, err
}

// aim lets the next turn last as long as it should, by what the last one took,
// with at least that part of its messages.
func (r *Runner) aim(t Turn, least float64) {
	factor := max(r.turn.Seconds()/t.Took.Seconds(), least)
	r.messages = max(1, int(float64(t.Messages)*factor))
}
