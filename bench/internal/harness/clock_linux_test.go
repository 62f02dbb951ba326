package harness

import (
	"net"
	"net/rpc"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProcessorTimeIsReadFromOutside: what a process does to report it would be measured as the
// work of idle connections.
func TestProcessorTimeIsReadFromOutside(t *testing.T) {
	tcp, err := Find(Baseline)
	require.NoError(t, err)
	pair, err := StartPair(tcp, Case{Kind: Conns, Conns: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, pair.Close()) }()
	before, err := pair.client.usage()
	require.NoError(t, err)

	near, far := net.Pipe()
	far.Close()
	unasked := &process{pair.client.cmd, rpc.NewClient(near)}
	used, err := unasked.cpuTime()
	require.NoError(t, err)
	const tick = 10e-3 // getrusage may count in these
	require.Greater(t, used.Seconds(), before.CPU.Seconds()-tick)
	after, err := pair.client.usage()
	require.NoError(t, err)
	require.Less(t, used.Seconds(), after.CPU.Seconds()+tick)
}
