package meeting

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gosdp/gosdp/test/watchdog"
)

// FuzzMeeting: whatever a peer says, an end accepts nothing but what an end would say that knows the proof.
func FuzzMeeting(f *testing.F) {
	d, a := talk()
	here := view{name: "v1-10.0.0.2:5", apart: true, self: 1, numbers: 1, counts: counts{100, 90, 80}}
	here.Facts = Facts{FirstIn: []byte("0123456789"), FirstOut: []byte("abcdefghij"), Moments: d}
	there := view{name: here.name, apart: true, self: 1, numbers: 2, counts: counts{85, 80, 95}}
	there.Facts = Facts{FirstIn: here.FirstOut, FirstOut: here.FirstIn, Moments: a}
	f.Add(there.hello())
	f.Add(here.hello())
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		defer watchdog.Start()()
		if here.check(b) != nil {
			return
		}
		assert.Len(t, b, helloLen)
		assert.Equal(t, prove(here.name, here.FirstOut[:b[nAt]]), b[nAt+1:])
	})
}
