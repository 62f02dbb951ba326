package bubble

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestInside(t *testing.T) {
	assert.NotEqual(t, start.Round(0), start, "without the monotonic clock")
	assert.False(t, Inside())
	synctest.Test(t, func(t *testing.T) {
		assert.True(t, Inside())
		time.Sleep(20 * 365 * 24 * time.Hour)
		assert.True(t, Inside(), "after 20 years in the bubble")
		go func() { assert.True(t, Inside(), "in a goroutine") }()
		time.AfterFunc(0, func() { assert.True(t, Inside(), "in a timer's function") })
	})
}
