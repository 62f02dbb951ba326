package bubble

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestInside(t *testing.T) {
	assert.False(t, Inside())
	synctest.Test(t, func(t *testing.T) {
		assert.True(t, Inside())
		time.Sleep(20 * 365 * 24 * time.Hour)
		assert.True(t, Inside(), "after 20 years in the bubble")
	})
}
