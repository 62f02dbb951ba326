package sdp

import (
	"errors"
	"fmt"
	"net"

	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/rules"
	"github.com/gosdp/gosdp/sdp/stats"
)

// logDial writes to the log that the operator's file has configured.
func logDial(n policy.Network, e *stats.Dial, c net.Conn, err error) {
	if !policy.Logs(rules.LevelError) {
		return
	}
	level, address, result := rules.LevelSummary, e.Address, "plain TCP: "+e.Why()
	switch {
	case e.Device == "":
	case e.Device != "tcp":
		result = "connection over " + e.Device
	case n.Only:
		result = "peer met in shared memory"
	default:
		result = "TCP, may move to shared memory"
	}
	if err != nil {
		result = err.Error()
		var demanded *policy.DemandedError
		if errors.As(err, &demanded) {
			level = rules.LevelError
		}
	} else if addr := c.RemoteAddr(); addr != nil && addr.String() != address {
		address += " (" + addr.String() + ")"
	}
	policy.Log(level, fmt.Sprintf("connect %s %s: %s (%s)", n.Name, address, result, n.Why()))
}

// logListen is logDial for a listener.
func logListen(n policy.Network, address net.Addr, set *settings) {
	if !policy.Logs(rules.LevelSummary) {
		return
	}
	result := "SDP and TCP"
	switch {
	case len(set.Devices) == 0 && !set.shm:
		result = "TCP only"
	case n.Only:
		result = "SDP only"
	}
	policy.Log(rules.LevelSummary, fmt.Sprintf("listen %s %v: %s (%s)", n.Name, address, result, n.Why()))
}
