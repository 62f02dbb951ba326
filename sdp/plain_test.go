package sdp

import (
	"context"
	"maps"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var someone = peerKey{"tcp", "192.0.2.1:80"}

func TestAnswerIsRememberedForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peers peerTable
		peers.remember(someone, speaksTCP, time.Minute)
		time.Sleep(time.Minute - 1)
		s, err := peers.ask(t.Context(), someone)
		require.NoError(t, err)
		assert.Equal(t, speaksTCP, s)
		time.Sleep(time.Nanosecond)
		s, err = peers.ask(t.Context(), someone)
		require.NoError(t, err)
		assert.Equal(t, unknown, s)
		peers.asked(someone)
	})
}

func TestOneAsksAndOthersWaitForTheAnswer(t *testing.T) {
	for _, answer := range []speech{speaksTCP, speaksSDP} {
		synctest.Test(t, func(t *testing.T) {
			var peers peerTable
			s, err := peers.ask(t.Context(), someone)
			require.NoError(t, err)
			require.Equal(t, unknown, s)
			var told atomic.Int32
			for range 100 {
				go func() {
					s, err := peers.ask(context.Background(), someone)
					assert.NoError(t, err)
					assert.Equal(t, answer, s)
					told.Add(1)
				}()
			}
			s, err = peers.ask(t.Context(), peerKey{"tcp", "192.0.2.2:80"})
			require.NoError(t, err)
			assert.Equal(t, unknown, s, "another address is another question")
			synctest.Wait()
			assert.Zero(t, told.Load())
			peers.remember(someone, answer, time.Minute)
			peers.asked(someone)
			synctest.Wait()
			assert.EqualValues(t, 100, told.Load())
		})
	}
}

// TestQuestionPassesOnWithoutAnAnswer has each of those who ask fail.
func TestQuestionPassesOnWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peers peerTable
		var asking, most, all atomic.Int32
		for range 10 {
			go func() {
				s, err := peers.ask(context.Background(), someone)
				assert.NoError(t, err)
				assert.Equal(t, unknown, s)
				most.Store(max(most.Load(), asking.Add(1)))
				time.Sleep(time.Second)
				asking.Add(-1)
				all.Add(1)
				peers.asked(someone)
			}()
		}
		time.Sleep(time.Minute)
		assert.EqualValues(t, 1, most.Load())
		assert.EqualValues(t, 10, all.Load())
	})
}

func TestWaitingForAnAnswerEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peers peerTable
		peers.ask(t.Context(), someone)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := peers.ask(ctx, someone)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestFullTableDropsWhatWouldHaveGoneFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peers peerTable
		for i := range maxPeers {
			peers.remember(peerKey{"tcp", strconv.Itoa(i)}, speaksTCP, time.Hour)
			time.Sleep(time.Millisecond)
		}
		peers.remember(peerKey{"tcp", "1"}, speaksTCP, time.Hour) // again, and there is room
		assert.Len(t, peers.answers, maxPeers)
		peers.remember(someone, speaksTCP, time.Hour)
		assert.Len(t, peers.answers, maxPeers)
		assert.NotContains(t, peers.answers, peerKey{"tcp", "0"})
		assert.Contains(t, peers.answers, peerKey{"tcp", "1"})
	})
}

// forget has the next Dial to the address ask anew. The kernel gives a port that
// one test has closed to another.
func forget(address string) {
	peers.mu.Lock()
	defer peers.mu.Unlock()
	maps.DeleteFunc(peers.answers, func(key peerKey, _ answer) bool { return key.address == address })
}
