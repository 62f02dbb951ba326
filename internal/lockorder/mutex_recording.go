//go:build lockorder && (amd64 || arm64)

package lockorder

import (
	"reflect"
	"sync"
)

// Recording reports whether this build checks the order of locks.
const Recording = true

// Mutex is a sync.Mutex of class C. The zero value is unlocked.
type Mutex[C any] struct{ mu sync.Mutex }

// Lock locks m. It panics if that is against the order of locks.
func (m *Mutex[C]) Lock() {
	h := newHold(reflect.TypeFor[C](), &m.mu)
	locks.check(h)
	m.mu.Lock()
	locks.add(h)
}

// TryLock tries to lock m and reports whether it succeeded.
func (m *Mutex[C]) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	locks.add(newHold(reflect.TypeFor[C](), &m.mu))
	return true
}

// Unlock unlocks m.
func (m *Mutex[C]) Unlock() {
	locks.release(&m.mu)
	m.mu.Unlock()
}
