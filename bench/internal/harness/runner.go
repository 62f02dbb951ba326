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
	for ; ; r.messages *= 2 {
		t, err := pair.Run(r.messages)
		if err != nil {
			return nil, err
		}
		// A quarter of a turn is long enough to foretell the rest.
		if t.Took >= turn/4 {
			r.aim(t, float64(r.messages))
			return r, nil
		}
	}
}

// Turn takes one turn.
func (r *Runner) Turn() (Turn, error) {
	t, err := r.Run(r.messages)
	if err == nil && !r.fixed {
		// One slow turn does not make the next one a short one.
		r.aim(t, 2)
	}
	return t, err
}

// aim lets the next turn last as long as it should, by what the last one took,
// with at most so many times the messages, or that part of them.
func (r *Runner) aim(t Turn, most float64) {
	factor := r.turn.Seconds() / t.Took.Seconds()
	r.messages = max(1, int(float64(t.Messages)*min(max(factor, 1/most), max(4, most))))
}
