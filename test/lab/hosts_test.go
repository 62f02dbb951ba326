package lab_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/lab"
)

// TestHosts tests SDP over rxe and siw between two hosts: a host or a port fails, RDMA's
// packets are dropped while TCP's are not, and sent data is slow to arrive.
func TestHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("missing: time, because -short is set; make verbs runs this test")
	}
	var cable lab.Link
	hosts := make([]*lab.Machine, 2)
	program := ""
	for i := range hosts {
		hosts[i] = lab.Boot(t, lab.Config{Memory: "1G", CPUs: 1, Link: &cable})
		if program == "" {
			program = buildTest(t, "test/lab/inside")
		}
		hosts[i].Copy(t, program)
		hosts[i].Run(t, fmt.Sprintf("ip link set eth1 up; ip addr add %s/24 dev eth1", at(i)))
	}
	for _, device := range []struct{ name, add string }{
		{"rxe", "rdma link add rxe1 type rxe netdev eth1"},
		{"siw", "rdma link delete rxe1; insmod /lib/modules/$(uname -r)/siw/siw; rdma link add siw1 type siw netdev eth1"},
	} {
		t.Run(device.name, func(t *testing.T) {
			for _, host := range hosts {
				host.Run(t, device.add)
			}
			server := hosts[0].Start(t, fmt.Sprintf("VERBS_SERVE=%s ./inside.test -test.v -test.run '^TestServe$'", at(0)))
			hosts[0].Listening(t, 7471)
			ask := func(t *testing.T, test, more string) {
				t.Helper()
				result := hosts[1].Start(t, fmt.Sprintf("%s VERBS_SERVER=%s:7471 ./inside.test -test.v -test.run '^%s$'", more, at(0), test)).Wait()
				require.Zero(t, result.Status, result.Output)
				require.Contains(t, result.Output, "--- PASS: "+test)
			}
			ask(t, "TestOtherHost", "")
			if device.name == "rxe" {
				hosts[1].Run(t, drop)
				ask(t, "TestFiltered", "")
				hosts[1].Run(t, "tc qdisc delete dev eth1 root; "+dropOther)
				ask(t, "TestTOS", "")
				hosts[1].Run(t, "tc qdisc delete dev eth1 root; "+dropRTU)
				ask(t, "TestRTULost", "")
				hosts[1].Run(t, "tc qdisc delete dev eth1 root")
			} else {
				ask(t, "TestSlowCable", "")
				hosts[0].Run(t, "tc qdisc delete dev eth1 root")
			}
			for _, how := range []string{"idle", "writing", "reading", "port down"} {
				t.Run(how, func(t *testing.T) {
					ask(t, "TestHostGone", fmt.Sprintf("VERBS_GONE='%s'", how))
					hosts[0].Run(t, "tc qdisc delete dev eth1 root; ip link set eth1 up")
				})
			}
			// Last, because the server's end must also notice the failures before.
			ask(t, "TestEndServer", "")
			result := server.Wait()
			require.Zero(t, result.Status, result.Output)
			assert.Equal(t, 4, strings.Count(result.Output, "the cable was cut"), result.Output)
		})
	}
}

// at returns a host's address on the link between the hosts.
func at(host int) string { return fmt.Sprintf("10.1.0.%d", host+1) }

// drop drops all RoCE packets, dropOther those that are not of class 0x88, and dropRTU the last message
// of rdma_cm's handshake, which is a datagram (UD, SEND Only) with a MAD of attribute 0x14.
const (
	drop      = dropped + "flowid 1:2"
	dropRTU   = dropped + "match u8 0x64 0xff at 28 match u16 0x14 0xffff at 64 flowid 1:2"
	dropOther = dropped + "match ip tos 0x88 0xfc flowid 1:1" + `
	tc filter add dev eth1 parent 1: prio 2 protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff flowid 1:2`

	dropped = `
	tc qdisc add dev eth1 root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
	tc qdisc add dev eth1 parent 1:2 netem loss 100%
	tc filter add dev eth1 parent 1: prio 1 protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff `
)
