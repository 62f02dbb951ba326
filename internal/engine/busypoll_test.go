package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBusyPollIsTheDevices(t *testing.T) {
	_, _, client, server := countedWith(t, Tuning{BusyPoll: time.Millisecond})
	assert.Equal(t, time.Millisecond, client.busyPoll)
	assert.Equal(t, time.Millisecond, server.busyPoll)
}
