package lockorder

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

type class struct{}

// TestMutexIsNoLarger than a sync.Mutex, so a connection is not either.
func TestMutexIsNoLarger(t *testing.T) {
	assert.Equal(t, unsafe.Sizeof(sync.Mutex{}), unsafe.Sizeof(Mutex[class]{}))
}

// TestTryLock: a Mutex that is locked cannot be taken.
func TestTryLock(t *testing.T) {
	var m Mutex[class]
	assert.True(t, m.TryLock())
	assert.False(t, m.TryLock())
	m.Unlock()
	m.Lock()
	assert.False(t, m.TryLock())
	m.Unlock()
}
