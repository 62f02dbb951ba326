package shmdir

import (
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/gosdp/gosdp/internal/sysfile"
)

// noUser is the uid that the kernel shows by default for users without a number in this user
// namespace. It stands for many users, so it identifies none.
const noUser = 65534

// overflow is the uid that this host's kernel shows for them.
var overflow = sync.OnceValue(func() int {
	text, err := sysfile.Read("/proc/sys/kernel/overflowuid")
	if err != nil {
		return noUser
	}
	uid, err := strconv.Atoi(text)
	if err != nil {
		return noUser
	}
	return uid
})

// MayMeet returns nil if a process of the user uid may be the peer of one of the user own, which
// accepts the users others as well.
func MayMeet(uid, own int, others []int) error {
	if uid == noUser || uid == overflow() || uid != own && !slices.Contains(others, uid) {
		return errors.New("peer has uid " + strconv.Itoa(uid) + ", ours " + strconv.Itoa(own))
	}
	return nil
}
