package sim

// device is one end's half of a queue pair. What is sent arrives in order, as
// late as chance has it; so do RDMA Writes and RDMA Read Requests. A Read Request
// that has arrived is carried out at any time after that, and its Response is in
// order with what is sent then.
type device struct {
	w       *world
	name    string
	peer    *device
	out     []item       // under way to the peer
	asked   []item       // Read Requests of the peer's that are to be carried out
	reads   []item       // Read Requests of ours that were not answered, oldest first
	cq      []completion // for the owner
	regions []region     // the index is part of the STag

	readsPosted, readsDone int
}

type itemKind uint8

const (
	itemSend itemKind = iota
	itemWrite
	itemReadRequest
	itemReadResponse
)

// item is something on its way.
type item struct {
	kind  itemKind
	bytes []byte // Send, Read Response; Write: the sender's own memory
	stag  uint32 // Write, Read Request; Send: the region to invalidate, or 0
	va    uint64
	local []byte // Read Request: where the bytes are to go
	early bool   // Write: the bytes are a copy, and it has completed
}

type completion struct {
	kind        itemKind
	bytes       []byte // itemSend: the message that came; itemReadResponse: what was filled
	invalidated uint32
}

type region struct {
	bytes []byte
	live  bool
	read  bool // the peer may read it, otherwise write
	stag  uint32
	va    uint64
}

const stagStep = 0x101 // STags of consecutive regions differ by this

func (d *device) register(b []byte, read bool) (stag uint32, va uint64) {
	stag = uint32(len(d.regions)+1) * stagStep
	va = uint64(d.w.r.Uint32())
	d.regions = append(d.regions, region{bytes: b, live: true, read: read, stag: stag, va: va})
	return stag, va
}

// invalidate ends a region's exposure; of one that has ended it does nothing.
func (d *device) invalidate(stag uint32) {
	if r := d.region(stag); r != nil {
		r.live, r.bytes = false, nil
	}
}

func (d *device) region(stag uint32) *region {
	if stag == 0 || stag%stagStep != 0 || int(stag/stagStep) > len(d.regions) {
		return nil
	}
	return &d.regions[stag/stagStep-1]
}

// exposed returns how many regions are, for the peer to read or to write.
func (d *device) exposed(read bool) (n int) {
	for i := range d.regions {
		if r := &d.regions[i]; r.live && r.read == read {
			n++
		}
	}
	return n
}

// at returns the memory that the peer names, and fails if it may not.
func (d *device) at(what string, stag uint32, va uint64, n int, read bool) []byte {
	r := d.region(stag)
	switch {
	case r == nil || !r.live || r.read != read:
		d.w.failf("%s: %s of STag %#x, which is not exposed", d.name, what, stag)
	case va < r.va || va+uint64(n) > r.va+uint64(len(r.bytes)):
		d.w.failf("%s: %s past the bounds of STag %#x", d.name, what, stag)
	}
	return r.bytes[va-r.va:][:n]
}

// deliver has the oldest thing under way arrive at the peer.
func (d *device) deliver() bool {
	if len(d.out) == 0 {
		return false
	}
	it := d.out[0]
	d.out = d.out[1:]
	p := d.peer
	switch it.kind {
	case itemSend:
		if it.stag != 0 {
			if r := p.region(it.stag); r == nil || !r.live {
				p.w.failf("%s: the peer invalidates STag %#x, which is not exposed", p.name, it.stag)
			}
			p.invalidate(it.stag)
		}
		p.cq = append(p.cq, completion{kind: itemSend, bytes: it.bytes, invalidated: it.stag})
	case itemWrite:
		copy(p.at("RDMA Write", it.stag, it.va, len(it.bytes), false), it.bytes)
		if !it.early {
			d.cq = append(d.cq, completion{kind: itemWrite, bytes: it.bytes})
		}
	case itemReadRequest:
		p.asked = append(p.asked, it)
	case itemReadResponse:
		request := p.reads[0]
		p.reads = p.reads[1:]
		p.readsDone++
		copy(request.local, it.bytes)
		p.cq = append(p.cq, completion{kind: itemReadResponse, bytes: request.local})
	}
	return true
}

// answer carries out the oldest Read Request that has arrived.
func (d *device) answer() bool {
	if len(d.asked) == 0 {
		return false
	}
	it := d.asked[0]
	d.asked = d.asked[1:]
	b := d.at("RDMA Read", it.stag, it.va, len(it.local), true)
	d.out = append(d.out, item{kind: itemReadResponse, bytes: append([]byte(nil), b...)})
	return true
}

func (d *device) send(b []byte, invalidate uint32) {
	d.out = append(d.out, item{kind: itemSend, bytes: b, stag: invalidate})
}

// write posts an RDMA Write, which may complete long before it arrives.
func (d *device) write(b []byte, stag uint32, va uint64) {
	it := item{kind: itemWrite, bytes: b, stag: stag, va: va}
	if d.w.chance(2) {
		it.early = true
		it.bytes = append([]byte(nil), b...)
		d.cq = append(d.cq, completion{kind: itemWrite, bytes: b})
	}
	d.out = append(d.out, it)
}

// read posts an RDMA Read; not if there is no room.
func (d *device) read(local []byte, stag uint32, va uint64) bool {
	if len(d.reads) >= d.w.ord || d.w.chance(d.w.refusal) {
		return false
	}
	it := item{kind: itemReadRequest, local: local, stag: stag, va: va}
	d.reads = append(d.reads, it)
	d.readsPosted++
	d.out = append(d.out, it)
	return true
}

// quiet reports that nothing is under way.
func (d *device) quiet() bool {
	return len(d.out) == 0 && len(d.asked) == 0 && len(d.reads) == 0 && len(d.cq) == 0
}
