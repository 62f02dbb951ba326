package nic

import "github.com/gosdp/gosdp/rdma"

// The functions in this file are for the devices' tests only.

// Rename gives a region the STag to, which a script of a test can contain.
func (t *Regions) Rename(from, to rdma.STag) { t.Insert(to, t.take(from)) }

// Insert enters a region, which may have ended.
func (t *Regions) Insert(tag rdma.STag, r *Region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byTag[tag] = r
}

// Held reports whether a goroutine holds the region.
func (r *Region) Held() bool {
	if !r.mu.TryLock() {
		return true
	}
	r.mu.Unlock()
	return false
}
