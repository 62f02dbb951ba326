package lab_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/lab"
)

// TestNothingIsSent: two hosts with RDMA devices and the default settings exchange on network tcp what
// the programs write, on one connection, and nothing else. That the capture shows more is tested with
// settings that ask for SDP.
func TestNothingIsSent(t *testing.T) {
	if testing.Short() {
		t.Skip("missing: time, because -short is set; make verbs runs this test")
	}
	var cable lab.Link
	capture := filepath.Join(t.TempDir(), "link.pcap")
	hosts := []*lab.Machine{
		lab.Boot(t, lab.Config{Memory: "1G", CPUs: 1, Link: &cable, Capture: capture}),
		lab.Boot(t, lab.Config{Memory: "1G", CPUs: 1, Link: &cable}),
	}
	program := buildTest(t, "test/lab/inside")
	for i, host := range hosts {
		host.Copy(t, program)
		host.Run(t, fmt.Sprintf("ip link set eth1 up; ip addr add %s/24 dev eth1; rdma link add rxe1 type rxe netdev eth1", at(i)))
		require.Contains(t, host.Run(t, "rdma link"), "rxe1")
	}
	var written strings.Builder
	for i := range 100 {
		written.WriteString(strings.Repeat(fmt.Sprintf("exchange %02d\n", i), 64))
	}
	seen := 0 // packets, of the runs before
	run := func(settings string) (client, server string, other []string) {
		serving := hosts[0].Start(t, fmt.Sprintf("VERBS_SERVE=%s ./inside.test -test.v -test.run '^TestPlainServer$'", at(0)))
		hosts[0].Listening(t, 7472)
		result := hosts[1].Start(t, fmt.Sprintf("%s VERBS_SERVER=%s:7472 ./inside.test -test.v -test.run '^TestPlainClient$'", settings, at(0))).Wait()
		assert.Equal(t, settings == "", result.Status == 0, result.Output)
		serving.Wait()
		all := packets(t, capture)
		client, server, other = streams(all[seen:], 7472)
		seen = len(all)
		return client, server, other
	}

	client, server, other := run("")
	assert.Equal(t, written.String(), client)
	assert.Equal(t, written.String(), server)
	assert.Equal(t, []string{"connection"}, other)

	client, _, _ = run("SDP_DEVICES=verbs SDP_PEERS=" + at(0))
	assert.Contains(t, client, "MPA ID Req Frame")
}

// packets returns the packets of a pcap file.
func packets(t *testing.T, file string) (all [][]byte) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	const fileHeader, header = 24, 16
	require.Greater(t, len(b), fileHeader)
	for b = b[fileHeader:]; len(b) >= header; {
		n := header + int(binary.LittleEndian.Uint32(b[8:]))
		if len(b) < n {
			break
		}
		all = append(all, b[header:n])
		b = b[n:]
	}
	return all
}

// streams returns what the client of a TCP port and the server have sent, as far as it is in order.
// other has an entry for each connection to the port, and one for each packet that is neither of
// these nor one by which the kernels find each other.
func streams(all [][]byte, port uint16) (client, server string, other []string) {
	var next [2]uint32
	var sent [2]string
	for _, p := range all {
		const ethernet = 14
		kind := binary.BigEndian.Uint16(p[12:])
		ip := p[ethernet:]
		switch {
		case kind == 0x0806: // ARP
			continue
		case kind == 0x86DD && (ip[6] == 58 || ip[6] == 0): // ICMPv6, of neighbours and of groups
			continue
		case kind == 0x0800 && ip[9] == 2: // IGMP
			continue
		case kind != 0x0800 || ip[9] != 6:
			other = append(other, fmt.Sprintf("%x", p))
			continue
		}
		tcp := ip[int(ip[0]&15)*4 : binary.BigEndian.Uint16(ip[2:])]
		from, to := binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])
		if from != port && to != port {
			other = append(other, fmt.Sprintf("TCP from port %d to port %d", from, to))
			continue
		}
		way := 0
		if from == port {
			way = 1
		}
		seq, payload := binary.BigEndian.Uint32(tcp[4:]), tcp[int(tcp[12]>>4)*4:]
		const syn = 0x02
		if tcp[13]&syn != 0 {
			next[way] = seq + 1
			if way == 0 {
				other = append(other, "connection")
			}
			if len(payload) > 0 {
				other = append(other, "a SYN with data")
			}
			continue
		}
		if again := int32(next[way] - seq); again >= 0 && int(again) < len(payload) {
			sent[way] += string(payload[again:])
			next[way] = seq + uint32(len(payload))
		}
	}
	return sent[0], sent[1], other
}
