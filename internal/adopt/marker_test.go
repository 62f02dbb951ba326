package adopt

import (
	"bytes"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestMarkerIsFoundAnywhere(t *testing.T) {
	const mark = "sdp-go-" + "build{gosdp=v1.2.3;go=go1.26.8}" // in two parts: the tool contains this file
	for _, at := range []int{0, 1, 1<<20 - 20, 1<<20 - 1, 1 << 20, 2<<20 - 300} {
		text := strings.Repeat("x", at) + mark + strings.Repeat("y", 1000)
		found, err := search(strings.NewReader(text))
		require.NoError(t, err)
		require.Equal(t, []string{mark, "v1.2.3", "go1.26.8"}, found, "at %d", at)
		found, err = search(iotest.OneByteReader(strings.NewReader(text[max(0, at-10):])))
		require.NoError(t, err)
		require.NotNil(t, found)
	}
	for _, text := range []string{"", "sdp-go-build{gosdp=@@VERSION@@;go=@@GOVERSION@@}", "sdp-go-" + "build{gosdp=v1;go=rust}"} {
		found, err := search(bytes.NewReader([]byte(text)))
		require.NoError(t, err)
		require.Nil(t, found, text)
	}
}
