package collect

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/status"
)

// TestDirsAreNames: nothing is looked at that a user has made, whatever it is.
func TestDirsAreNames(t *testing.T) {
	run, temp := newDir(t), newDir(t)
	for _, name := range []string{"1", "2", "x"} {
		require.NoError(t, os.Mkdir(filepath.Join(run, name), 0o700))
	}
	for _, name := range []string{"3", "03", "+3", "x", ""} {
		require.NoError(t, os.WriteFile(filepath.Join(temp, status.DirName+name), nil, 0o600))
	}
	dirs, failures := dirsBelow(run, temp)
	require.Empty(t, failures)
	require.ElementsMatch(t, []string{run + "/1/sdp-status-1", run + "/2/sdp-status-2", temp + "/sdp-status-3"}, dirs)

	for i := range maxDirs {
		require.NoError(t, os.WriteFile(filepath.Join(temp, status.DirName+strconv.Itoa(i)), nil, 0o600))
	}
	dirs, failures = dirsBelow(run, temp)
	require.Len(t, dirs, maxDirs)
	require.Contains(t, dirs, run+"/2/sdp-status-2")
	require.Equal(t, []Failure{{temp, fmt.Errorf("more than 1024 directories of users")}}, failures)
	dirs, failures = dirsBelow(run+"/none", run)
	require.Empty(t, dirs)
	require.Empty(t, failures)
}

func TestDirectoryIsNamedAfterItsUser(t *testing.T) {
	below, own := newDir(t), os.Geteuid()
	for _, uid := range []int{own, own + 1} {
		require.NoError(t, os.Mkdir(filepath.Join(below, status.DirName+strconv.Itoa(uid)), 0o700))
	}
	require.NoError(t, Usable(filepath.Join(below, status.DirName+strconv.Itoa(own))))
	require.ErrorContains(t, Usable(filepath.Join(below, status.DirName+strconv.Itoa(own+1))), fmt.Sprint("is owned by user ", own))
}

// TestFileSystemOfAUser mounts one that never answers, as a user can, where the directory of their
// programs is looked for.
func TestFileSystemOfAUser(t *testing.T) {
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("missing: /dev/fuse: ", err)
	}
	run, temp := newDir(t), newDir(t)
	hung := filepath.Join(temp, status.DirName+"12345")
	require.NoError(t, os.Mkdir(hung, 0o700))
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse)
	if err := unix.Mount("sdp", hung, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		unix.Close(fuse)
		t.Skip("missing: root, to mount a file system: ", err)
	}
	looked := make(chan []Failure, 1)
	go func() {
		dirs, _ := dirsBelow(run, temp)
		_, failures := Collect(dirs)
		looked <- failures
	}()
	var failures []Failure
	select {
	case failures = <-looked:
	case <-time.After(time.Minute):
	}
	require.NoError(t, unix.Close(fuse)) // ends what hangs
	require.NoError(t, unix.Unmount(hung, unix.MNT_DETACH))
	require.Eventually(t, func() bool {
		return enter(t.Context(), hung, func(*directory) error { return nil }) != errHung
	}, time.Minute, time.Millisecond)
	require.Equal(t, []Failure{{hung, errHung}}, failures)
}
