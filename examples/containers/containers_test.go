package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// A recorder keeps the contexts of its calls.
type recorder struct {
	grpc_health_v1.HealthClient
	calls []context.Context
}

func (r *recorder) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest, _ ...grpc.CallOption) (*grpc_health_v1.HealthCheckResponse, error) {
	r.calls = append(r.calls, ctx)
	return new(grpc_health_v1.HealthCheckResponse), nil
}

// TestEachCallHasItsDeadline: a client that makes many calls may need longer than any one of them.
func TestEachCallHasItsDeadline(t *testing.T) {
	var r recorder
	require.NoError(t, checkHealth(&r, 3))
	require.Len(t, r.calls, 3)
	seen := make(map[context.Context]bool)
	for _, ctx := range r.calls {
		_, limited := ctx.Deadline()
		require.True(t, limited)
		require.False(t, seen[ctx], "the calls share a deadline")
		seen[ctx] = true
	}
}

func TestWrongAnswerIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"right":  {http.StatusOK, "hello\n", ""},
		"body":   {http.StatusOK, "bye\n", `got 200 OK, "bye\n"`},
		"status": {http.StatusTeapot, "hello\n", `got 418 I'm a teapot, "hello\n"`},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}))
			defer server.Close()
			err := callHTTP(server.Listener.Addr().String(), 1)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
}

func TestUnknownArgumentsAreRefused(t *testing.T) {
	for _, args := range [][]string{nil, {"wait"}, {"call", "-times", "1", "more"}} {
		require.Error(t, run(args), args)
	}
	require.EqualError(t, run([]string{"serve", "-http", "localhost:0", "-grpc", "localhost:0", "call"}), `unknown argument "call"`)
}
