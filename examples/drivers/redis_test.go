//go:build unix

package drivers

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/programs"
)

func TestGoRedis(t *testing.T) {
	server := programs.Redis(t)
	d := newDialer()
	client := redis.NewClient(&redis.Options{
		Addr:                  overSDP(t, server),
		Dialer:                d.DialContext,
		PoolSize:              4,
		MaxRetries:            -1, // do not hide errors
		ContextTimeoutEnabled: true,
	})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	require.NoError(t, client.Ping(ctx).Err())
	for range 20 {
		require.NoError(t, client.Incr(ctx, "counter").Err())
	}
	require.Len(t, d.dialled(t), 1, "the pool reuses a live connection")
	require.Zero(t, client.PoolStats().StaleConns)

	t.Run("concurrency", func(t *testing.T) {
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for range 100 {
					assert.NoError(t, client.Incr(ctx, "shared").Err())
				}
			})
		}
		workers.Wait()
		n, err := client.Get(ctx, "shared").Int()
		require.NoError(t, err)
		require.Equal(t, 800, n)
		require.LessOrEqual(t, len(d.dialled(t)), 4)
	})
	t.Run("pipeline", func(t *testing.T) {
		answers, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for n := range 1000 {
				p.Set(ctx, strconv.Itoa(n), strings.Repeat("x", n), 0)
				p.StrLen(ctx, strconv.Itoa(n))
			}
			return nil
		})
		require.NoError(t, err)
		for n := range 1000 {
			require.EqualValues(t, n, answers[2*n+1].(*redis.IntCmd).Val())
		}
	})
	t.Run("large value", func(t *testing.T) {
		large := strings.Repeat("0123456789abcdef", 1<<20)
		require.NoError(t, client.Set(ctx, "large", large, 0).Err())
		back, err := client.Get(ctx, "large").Result()
		require.NoError(t, err)
		require.True(t, large == back)
	})
	t.Run("publish and subscribe", func(t *testing.T) {
		subscription := client.Subscribe(ctx, "news")
		defer subscription.Close()
		_, err := subscription.Receive(ctx)
		require.NoError(t, err)
		require.NoError(t, client.Publish(ctx, "news", "read all about it").Err())
		message, err := subscription.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.Equal(t, "read all about it", message.Payload)
	})
	t.Run("timeout", func(t *testing.T) {
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, client.BLPop(short, 0, "nothing").Err(), os.ErrDeadlineExceeded)
		require.NoError(t, client.Ping(ctx).Err())
	})
	t.Run("liveness check", func(t *testing.T) {
		killClients(ctx, t, server)
		require.Eventually(t, func() bool {
			for _, c := range d.dialled(t) {
				if alive(t, c) {
					return false
				}
			}
			return true
		}, 10*time.Second, time.Millisecond)
		before := client.PoolStats().StaleConns
		require.NoError(t, client.Ping(ctx).Err(), "the pool returned a dead connection")
		require.Greater(t, client.PoolStats().StaleConns, before)
	})
	d.requireMoved(t)
}

// killClients makes the server close every connection except the one used here.
func killClients(ctx context.Context, t *testing.T, server string) {
	t.Helper()
	admin := redis.NewClient(&redis.Options{Addr: server})
	defer admin.Close()
	require.NoError(t, admin.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err())
}

// alive reports whether the peer has not closed the connection. It checks as connection
// pools do before they reuse one: with recv(2), like go-redis, and with read(2), like
// the MySQL driver.
func alive(t *testing.T, c net.Conn) bool {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	require.NoError(t, err)
	var answers [2]error
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		answers[0] = answer(n, err)
		n, err = syscall.Read(int(fd), b[:])
		answers[1] = answer(n, err)
		return true
	})
	if err != nil {
		return false
	}
	require.Equal(t, answers[0], answers[1])
	require.Contains(t, []error{syscall.EAGAIN, io.EOF}, answers[0])
	return answers[0] == syscall.EAGAIN
}

func answer(n int, err error) error {
	if n == 0 && err == nil {
		return io.EOF
	}
	return err
}
