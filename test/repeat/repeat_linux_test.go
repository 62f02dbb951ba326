package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInterruptionEndsStartedProcesses: an interruption also ends processes that the tests
// started. Otherwise the run would last until they closed its output.
func TestInterruptionEndsStartedProcesses(t *testing.T) {
	r, _ := newRepeat(t)
	r.subjects = []subject{{name: "starts"}}
	r.file(t, "starts/starts_test.go", `package starts
import ("os"; "os/exec"; "testing")
func TestStarts(t *testing.T) {
	child := exec.Command("sleep", "60")
	child.Stdout = os.Stdout
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("started", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	child.Wait()
}
`)
	started := filepath.Join(r.root, "starts", "started")
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx, "") }()
	require.Eventually(t, func() bool {
		_, err := os.Stat(started)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	interrupt()
	select {
	case err := <-ended:
		assert.ErrorContains(t, err, "interrupted")
	case <-time.After(5 * time.Second):
		t.Error("an interrupted run did not end")
		<-ended
	}
	assert.Zero(t, r.runs(t), "an interrupted run is not recorded")
}
