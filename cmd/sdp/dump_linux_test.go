package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/dump"
)

// TestDumpOfAnotherProgram ends at its number of packets.
func TestDumpOfAnotherProgram(t *testing.T) {
	dir, p, c := program(t)
	pid := strconv.Itoa(p.Process.Pid)
	file := filepath.Join(t.TempDir(), "a.pcapng")
	dumped := startTool(t, toolCommand(t, "dump", "-dir", dir, "-w", file, "-c", "1", "-conn", c.LocalAddr().String(), pid))
	require.Contains(t, dumped.line(t, "writing"), file)
	_, err := c.Write([]byte("a secret"))
	require.NoError(t, err)
	require.Contains(t, dumped.line(t, "ended because"), "the limit of packets was reached. 0 packets were left out")
	require.NoError(t, dumped.Wait())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(text, []byte("\n\r\r\n")), "%q", text)
	require.Contains(t, string(text), "a secret")
	require.Contains(t, string(text), fmt.Sprintf("sdp.test/%s, connection 1: %v to %v over shm", pid, c.RemoteAddr(), c.LocalAddr()))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())

	_, errs, code := tool(t, "dump", "-dir", dir, "-w", file, pid)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "file exists")
	_, errs, code = tool(t, "dump", "-dir", dir, "1")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "process 1: not running, or not serving its status (SDP_STATUS=1)")
	for _, args := range [][]string{{}, {"x"}, {"-size", "1", pid}, {"-c", "-1", pid}, {"-for", "-1s", pid}, {"-conn", "a,size=1G", pid}, {pid, pid}} {
		_, errs, code := tool(t, append([]string{"dump", "-dir", dir}, args...)...)
		require.Equal(t, 2, code, "%v: %s", args, errs)
	}
}

// TestDumpIsInterrupted, after which its file is complete. The file is named after the program.
func TestDumpIsInterrupted(t *testing.T) {
	dir, p, _ := program(t)
	below, pid := t.TempDir(), strconv.Itoa(p.Process.Pid)
	dumped := startTool(t, toolCommand(t, "dump", "-dir", dir, "-w", filepath.Join(below, "%p.pcapng"), pid))
	file := filepath.Join(below, pid+".pcapng")
	require.Contains(t, dumped.line(t, "writing"), file)
	require.FileExists(t, file)
	require.NoError(t, dumped.Process.Signal(os.Interrupt))
	require.Contains(t, dumped.line(t, "ended because"), "it was stopped")
	require.NoError(t, dumped.Wait())
}

// TestDumpIsCutShort: a program that goes on running closes the connection in the middle of a packet,
// and another one is killed.
func TestDumpIsCutShort(t *testing.T) {
	var whole bytes.Buffer
	d := dump.Start(&whole, dump.Options{Size: dump.DefaultSize}, "whose", func() {})
	d.Stream(dump.Conn{ID: 1, Text: "test"}).Sent([]byte("first"))
	require.NoError(t, d.Stop())
	require.NotEmpty(t, dump.EndComment(whole.Bytes()))
	dir, err := os.MkdirTemp("", "sdp")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	pid := strconv.Itoa(os.Getpid())
	ln, err := net.Listen("unix", filepath.Join(dir, pid+"-x"))
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1024))
			io.WriteString(c, "ok\n")
			c.Write(whole.Bytes()[:whole.Len()-10])
			c.Close()
		}
	}()
	file := filepath.Join(t.TempDir(), "a.pcapng")
	_, errs, code := tool(t, "dump", "-dir", dir, "-w", file, pid)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "dump truncated after")
	require.NotContains(t, errs, "the program ended")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), "first")
	require.Contains(t, dump.EndComment(text), "unexpected end of the program's data")
	_, errs, code = tool(t, "dump", "-dir", dir, "-w", "-", pid)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "dump truncated after")

	dir, p, _ := program(t)
	file = filepath.Join(t.TempDir(), "a.pcapng")
	dumped := startTool(t, toolCommand(t, "dump", "-dir", dir, "-w", file, strconv.Itoa(p.Process.Pid)))
	dumped.line(t, "writing")
	require.NoError(t, dumped.Process.Signal(syscall.SIGSTOP)) // until the process is gone
	p.Process.Kill()
	p.Wait()
	require.NoError(t, dumped.Process.Signal(syscall.SIGCONT))
	dumped.line(t, "program exited")
	require.Equal(t, 1, dumped.status(t))
}

// TestDumpByTheEnvironment has a program whose environment asks for a dump of what it receives.
func TestDumpByTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dump")
	_, p, c := program(t, "SDP_DUMP="+file+"-%p,size=16K")
	_, err := c.Write(bytes.Repeat([]byte("secret"), 100_000))
	require.NoError(t, err)
	file = fmt.Sprintf("%s-%d", file, p.Process.Pid)
	text := func() string {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(b)
	}
	require.Eventually(t, func() bool { return strings.Contains(text(), "secret") }, patience, time.Millisecond)
	require.LessOrEqual(t, len(text()), 16<<10)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
}

// TestDumpIsOptional: a program with a dump that cannot be made works all the same.
func TestDumpIsOptional(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.Symlink(victim, link))
	_, _, c := program(t, "SDP_DUMP="+link)
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	require.NoFileExists(t, victim)
	dir, p, _ := program(t, "SDP_DUMP=off")
	_, errs, code := tool(t, "dump", "-dir", dir, "-w", link+"2", strconv.Itoa(p.Process.Pid))
	require.Equal(t, 1, code)
	require.Contains(t, errs, "disabled by SDP_DUMP=off in the program")
	require.NoFileExists(t, link+"2")
}

// TestDumpToAFullDisk ends early, says why, and leaves a file that is complete up to there.
func TestDumpToAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to mount a small disk")
	}
	disk := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, 0)) })
	secrets := bytes.Repeat([]byte("secret"), 100_000)
	const much = "GOSDP_TEST_READ=600000"
	complete := func(t *testing.T, file string) {
		t.Helper()
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(text), "secret")
		require.Contains(t, dump.EndComment(text), "no space left on device")
		require.NoError(t, os.Remove(file))
	}

	t.Run("by the environment", func(t *testing.T) {
		file := filepath.Join(disk, "dump")
		_, p, c := program(t, "SDP_DUMP="+file, much)
		_, err := c.Write(secrets)
		require.NoError(t, err)
		require.Contains(t, p.line(t, "the dump ended early"), "no space left on device")
		complete(t, file)
	})
	t.Run("by the command", func(t *testing.T) {
		dir, p, c := program(t, much)
		file := filepath.Join(disk, "dump")
		dumped := startTool(t, toolCommand(t, "dump", "-dir", dir, "-w", file, strconv.Itoa(p.Process.Pid)))
		dumped.line(t, "writing")
		_, err := c.Write(secrets)
		require.NoError(t, err)
		require.Contains(t, dumped.line(t, "sdp dump: dump truncated"), "no space left on device")
		require.Equal(t, 1, dumped.status(t))
		complete(t, file)
	})
	t.Run("to the standard output", func(t *testing.T) {
		dir, p, c := program(t, much)
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		defer full.Close()
		var errs strings.Builder
		cmd := toolCommand(t, "dump", "-dir", dir, "-w", "-", strconv.Itoa(p.Process.Pid))
		cmd.Stdout, cmd.Stderr = full, &errs
		require.NoError(t, cmd.Start())
		_, err = c.Write(secrets)
		require.NoError(t, err)
		require.Error(t, cmd.Wait())
		require.Equal(t, 1, cmd.ProcessState.ExitCode())
		require.Contains(t, errs.String(), "no space left on device")
	})
}
