package lab_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/lab"
)

func TestX(t *testing.T) {
	start := time.Now()
	m := lab.Boot(t, lab.Config{Ports: []int{7174}})
	t.Log(time.Since(start))
	t.Log(m.Run(t, "uname -a; id; pwd"))
	for _, v := range []string{"siw", "siw-strict"} {
		m.Siw(t, v)
		t.Log(m.Run(t, "rdma link"))
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	m.Copy(t, exe)
	t.Log(m.Run(t, "./lab.test -test.list ."))
	s := m.Start(t, "rping -s -C 10")
	m.Listening(t, 7174)
	t.Log(m.Run(t, "rping -c -a 10.0.2.15 -C 10"))
	t.Log(s.Wait())
	t.Log(time.Since(start))
}
