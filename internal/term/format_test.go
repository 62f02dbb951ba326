package term

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNumbers(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0 B", 999: "999 B", 1000: "1.00 kB", 1536: "1.54 kB", 15360: "15.4 kB",
		999_400: "999 kB", 999_600: "1.00 MB", 123e9: "123 GB", 99.96e6: "100 MB",
	} {
		require.Equal(t, want, Bytes(n))
	}
	require.Equal(t, "9.41 Gbit/s", Bits(9.41e9/8))
	for d, want := range map[time.Duration]string{
		5: "5 ns", 12345: "12.3 µs", 999_900: "1.00 ms", 1500 * time.Millisecond: "1.50 s", 2 * time.Minute: "120 s",
	} {
		require.Equal(t, want, Duration(d))
	}
	require.Equal(t, "59s", Age(59900*time.Millisecond))
	require.Equal(t, "1h1m", Age(61*time.Minute))
	require.Equal(t, "3d4h", Age(76*time.Hour))
	require.Equal(t, "0s", Age(-time.Hour))
}

func TestTable(t *testing.T) {
	table := NewTable("NAME", ">BYTES", "")
	table.Row("a", "1", "é")
	table.Row("\x1b[31mred\n", "1000")
	require.Equal(t, "NAME       BYTES\na              1  é\n?[31mred?   1000\n", table.String())
	require.Equal(t, "NAME", table.Lines(4)[0])
}

func TestCleanLeavesNoControl(t *testing.T) {
	require.Equal(t, "?]0;title? ok ???", Clean("\x1b]0;title\x07 ok \u202e\xff\u0085"))
}
