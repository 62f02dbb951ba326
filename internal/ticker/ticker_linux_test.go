package ticker

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTimerWithoutADescriptor: a connection from outside that is used in a bubble must not stop it for decades.
func TestTimerWithoutADescriptor(t *testing.T) {
	timer := Ticker{fallback: time.NewTimer(time.Hour)}
	defer timer.Stop()
	timer.Set(50 * time.Millisecond)
	synctest.Test(t, func(*testing.T) { timer.Set(time.Millisecond) })
	rang := make(chan struct{})
	go func() {
		timer.Wait()
		close(rang)
	}()
	select {
	case <-rang:
	case <-time.After(30 * time.Second):
		t.Error("it does not ring any more")
		timer.Set(0)
		<-rang
	}
}
