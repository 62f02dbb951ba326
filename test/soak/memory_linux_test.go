package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

func init() { memoryMain = writeUnread }

const (
	memoryBudget = 64 << 20 // of each process
	memoryEach   = 64 << 10 // per connection
)

// TestAllocsStayWithinBudget: hundreds of clients write to a program that does not read. The memory of both
// processes, as their control group accounts for it, must stay within both budgets plus a
// small amount per connection.
func TestAllocsStayWithinBudget(t *testing.T) {
	if raceEnabled {
		t.Skip("missing: a build without the race detector, which needs several times the memory")
	}
	clients := 1000
	if testing.Short() {
		clients = 300
	}
	for _, device := range []string{"shm", "iwarp"} {
		t.Run(device, func(t *testing.T) {
			group := newGroup(t)
			server := group.start(t, "server "+device)
			address := server.line(t)
			client := group.start(t, fmt.Sprint("client ", device, " ", address, " ", clients))
			require.Equal(t, "ready", client.line(t))
			before := group.usage(t)
			client.proceed(t)
			wrote, err := strconv.Atoi(client.line(t))
			require.NoError(t, err)
			used := group.usage(t) - before
			t.Logf("%d MB written, %d MB used", wrote>>20, used>>20)
			assert.LessOrEqual(t, used, 2*memoryBudget+clients*memoryEach)
			assert.Greater(t, wrote, memoryBudget/4)
		})
	}
}

// writeUnread is the main function of both processes.
func writeUnread(role string) error {
	words := strings.Fields(role)
	c := config(words[1])
	sdp.SetMemoryLimit(memoryBudget)
	if words[0] == "server" {
		ln, err := (&sdp.ListenConfig{Config: c}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer ln.Close()
		fmt.Println(ln.Addr())
		go func() {
			var held []io.Closer
			for {
				c, err := ln.Accept()
				if err != nil {
					for _, c := range held {
						c.Close()
					}
					return
				}
				held = append(held, c)
			}
		}()
		io.Copy(io.Discard, os.Stdin)
		return nil
	}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	wrote, failed := 0, error(nil)
	payload := make([]byte, 1<<20)
	slots := make(chan struct{}, 50)
	clients, err := strconv.Atoi(words[3])
	if err != nil {
		return err
	}
	conns := make([]io.Closer, 0, clients)
	for range clients {
		all.Go(func() {
			slots <- struct{}{}
			c, err := (&sdp.Dialer{Config: c}).Dial("tcp", words[2])
			<-slots
			sum := 0
			for err == nil && sum < 16<<20 {
				c.SetWriteDeadline(time.Now().Add(3 * time.Second))
				var n int
				n, err = c.Write(payload)
				sum += n
			}
			mu.Lock()
			defer mu.Unlock()
			wrote += sum
			if c != nil {
				conns = append(conns, c)
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				failed = err
			}
		})
	}
	all.Wait()
	if failed != nil {
		return failed
	}
	fmt.Println(wrote)
	io.Copy(io.Discard, in)
	for _, c := range conns {
		c.Close()
	}
	return nil
}

// group is a control group that the test has made.
type group struct{ dir, file string }

func newGroup(t *testing.T) *group {
	name := fmt.Sprintf("gosdp-soak-%d", os.Getpid())
	var why error
	for _, v := range []group{
		{"/sys/fs/cgroup/memory", "memory.usage_in_bytes"},
		{"/sys/fs/cgroup", "memory.current"},
	} {
		g := &group{filepath.Join(v.dir, name), v.file}
		if why = os.Mkdir(g.dir, 0o755); why != nil {
			continue
		}
		t.Cleanup(func() {
			assert.Eventually(t, func() bool { return os.Remove(g.dir) == nil }, 10*time.Second, 10*time.Millisecond)
		})
		if _, why = os.Stat(filepath.Join(g.dir, g.file)); why == nil {
			return g
		}
	}
	t.Skipf("missing: a control group for memory: %v", why)
	return nil
}

// usage returns how many bytes the group uses.
func (g *group) usage(t *testing.T) int {
	text, err := os.ReadFile(filepath.Join(g.dir, g.file))
	require.NoError(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	return n
}

// member is a process of the group.
type member struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts this program in a role. The process is in the group from its beginning.
func (g *group) start(t *testing.T, role string) *member {
	cmd := exec.Command("/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$1"`, g.dir, os.Args[0])
	cmd.Env = append(os.Environ(), memoryVariable+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		assert.NoError(t, cmd.Wait())
	})
	return &member{in, bufio.NewReader(out)}
}

// line returns the next line that the process prints.
func (m *member) line(t *testing.T) string {
	text, err := m.out.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(text)
}

// proceed tells the process to continue.
func (m *member) proceed(t *testing.T) {
	_, err := io.WriteString(m.in, "\n")
	require.NoError(t, err)
}
