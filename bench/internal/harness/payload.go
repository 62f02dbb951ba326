package harness

// Every byte of a stream's message k is byte(k), so either side can check any byte
// by its position in the stream.

// fill rewrites buf with message k.
func fill(buf []byte, k int) {
	const line = 512 // small enough for the first-level cache
	head := buf[:min(len(buf), line)]
	for i := range head {
		head[i] = byte(k)
	}
	for i := len(head); i < len(buf); i += line {
		copy(buf[i:], head)
	}
}

// intact samples the first and the last byte of b, which begins at offset in a
// stream of messages of size bytes.
func intact(b []byte, offset, size int) bool {
	last := len(b) - 1
	return b[0] == byte(offset/size) && b[last] == byte((offset+last)/size)
}
