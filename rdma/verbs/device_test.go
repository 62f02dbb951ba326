//go:build linux && cgo

package verbs

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

var whatIsMissing = regexp.MustCompile(`no RDMA device on this machine|no permission to use RDMA|load the module rdma_ucm|RLIMIT_MEMLOCK|` +
	`libibverbs|librdmacm`)

// Without hardware the error says what is missing, and nothing else happens.
func TestProbe(t *testing.T) {
	err := device{}.Probe()
	if err == nil {
		if _, err := acquire(); err != nil {
			t.Errorf("Probe = nil, and then %v", err)
			return
		}
		current.eventLoop.release()
		return
	}
	if !whatIsMissing.MatchString(err.Error()) {
		t.Errorf("%v does not say what is missing", err)
	}
	if err := (device{}).Reaches(rdma.Peer{}); err == nil {
		t.Error("Reaches = nil without a device")
	}
}

// The error for memory that cannot be locked says what to do.
func TestWhyRegister(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EPERM} {
		if err := whyLocked(1<<20, errno); !strings.Contains(err.Error(), "RLIMIT_MEMLOCK") || !strings.Contains(err.Error(), "1024 KB") {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := whyLocked(1<<20, syscall.EFAULT); strings.Contains(err.Error(), "RLIMIT_MEMLOCK") {
		t.Errorf("EFAULT: %v", err)
	}
}
