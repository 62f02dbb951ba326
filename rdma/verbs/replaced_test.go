//go:build linux && cgo

package verbs

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// TestDeviceReplaced: an acceptor outlives its device. While no device has the address, Invite says
// so; afterwards peers connect over the next device that has it. The test runs only where it may
// remove devices: VERBS_TAKE is a command that does, which may end together with this process, and
// VERBS_GIVE one that gives the address to another device.
func TestDeviceReplaced(t *testing.T) {
	take, give := os.Getenv("VERBS_TAKE"), os.Getenv("VERBS_GIVE")
	if take == "" || give == "" {
		t.Skip("missing: VERBS_TAKE and VERBS_GIVE, commands that replace the device")
	}
	at := hardware(t)
	place, err := device{}.Listen(config)
	must(t, err)
	defer place.Close()
	a, b := meet(t, place, at, config)
	must(t, exec.Command("bash", "-c", take).Start())
	for _, q := range []rdma.QueuePair{a, b} {
		var wcs [1]rdma.Completion
		for err = nil; err == nil; {
			_, err = q.Wait(wcs[:])
		}
		t.Logf("Wait: %v", err)
		must(t, q.Abort())
	}

	ends := netip.AddrPortFrom(at, 1)
	invite := func() error {
		i, err := place.Invite(rdma.Peer{Local: ends, Remote: ends}, nil)
		if err == nil {
			i.Withdraw()
		}
		return err
	}
	for end := time.Now().Add(patience); err == nil || !strings.Contains(err.Error(), "not the address of an RDMA device"); err = invite() {
		if time.Now().After(end) {
			t.Fatalf("Invite without a device: %v", err)
		}
	}
	t.Logf("Invite: %v", err)

	output, err := exec.Command("bash", "-c", give).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	a, b = meet(t, place, at, config)
	if n := openContexts(t); n != 2 {
		t.Errorf("%d devices are open, want both: the eventLoop still reads from the first", n)
	}
	t.Logf("now over %T, iWARP: %v", a, a.(*QueuePair).rnic)
	must(t, errors.Join(a.Abort(), b.Abort()))
}

// openContexts returns how many devices this process has open.
func openContexts(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)
	for _, file := range files {
		if to, _ := os.Readlink(file); strings.HasPrefix(to, "/dev/infiniband/uverbs") {
			n++
		}
	}
	return n
}
