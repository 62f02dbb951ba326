package adopt

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/gosdp/gosdp/sdp"
)

// serveGRPC starts a server, which records its clients.
func serveGRPC(t *testing.T, network, address string, secure bool) *server {
	listener, err := net.Listen(network, address)
	require.NoError(t, err)
	s := &server{Listener: listener}
	options := []grpc.ServerOption{grpc.UnaryInterceptor(
		func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			p, _ := peer.FromContext(ctx)
			if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
				s.saw("TLS for %q, protocol %q", info.State.ServerName, info.State.NegotiatedProtocol)
			}
			s.saw("%s", p.Addr.Network())
			if p.Addr.Network() == "tcp" {
				s.saw("%s", socketOptions(t, p.Addr))
			}
			return handler(ctx, request)
		})}
	if secure {
		identity, _ := identities()
		config, err := identity.Config()
		require.NoError(t, err)
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	rpc := grpc.NewServer(options...)
	grpc_health_v1.RegisterHealthServer(rpc, health.NewServer())
	go rpc.Serve(listener)
	t.Cleanup(rpc.Stop)
	return s
}

// abstract returns the name of an abstract Unix socket for a directory.
func abstract(dir string) string { return strings.ReplaceAll(dir, "/", "-") }

// checkGRPC makes a call.
func checkGRPC(ctx context.Context, t *testing.T, target string, secure, recipe bool) string {
	creds := insecure.NewCredentials()
	if secure {
		creds = credentials.NewTLS(clientTLS(t))
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(creds)}
	if recipe {
		options = append(options, GRPC())
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return outcome(err)
	}
	defer conn.Close()
	var server peer.Peer
	reply, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, nil, grpc.Peer(&server))
	if ctx.Err() != nil {
		return "timeout"
	}
	dir, wdErr := os.Getwd()
	require.NoError(t, wdErr)
	saw := fmt.Sprint(reply.GetStatus(), " from ", server.Addr, " ", outcome(err))
	return strings.NewReplacer(dir, "DIRECTORY", abstract(dir), "NAME").Replace(saw)
}

func TestGRPC(t *testing.T) {
	script(func(t *testing.T, recipe bool) (saw []string) {
		servers := []*server{serveGRPC(t, "tcp", "127.0.0.1:0", false), serveGRPC(t, "tcp", "127.0.0.1:0", true)}
		ctx := watched(t)
		_, port, err := net.SplitHostPort(servers[1].Addr().String())
		require.NoError(t, err)
		saw = append(saw,
			checkGRPC(ctx, t, servers[0].Addr().String(), false, recipe),
			checkGRPC(ctx, t, "passthrough:///"+servers[0].Addr().String(), false, recipe),
			checkGRPC(ctx, t, servers[1].Addr().String(), true, recipe),
			checkGRPC(ctx, t, "dns:///localhost:"+port, true, recipe),
			checkGRPC(ctx, t, refused(t), false, recipe),
		)

		t.Chdir(t.TempDir())
		wd, err := os.Getwd()
		require.NoError(t, err)
		servers = append(servers, serveGRPC(t, "unix", "s", false))
		for _, target := range []string{"unix:s", "unix:" + filepath.Join(wd, "s"), "unix://" + filepath.Join(wd, "s"), "unix://" + filepath.Join(wd, "nobody")} {
			saw = append(saw, checkGRPC(ctx, t, target, false, recipe))
		}
		if runtime.GOOS == "linux" {
			servers = append(servers, serveGRPC(t, "unix", "@"+abstract(wd), false))
			saw = append(saw, checkGRPC(ctx, t, "unix-abstract:"+abstract(wd), false, recipe))
		}

		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		saw = append(saw, checkGRPC(short, t, stalled(t), false, recipe))
		for _, s := range servers {
			saw = append(saw, s.all()...)
		}
		return saw
	}).same(t)
}

// TestGRPCIgnoresProxy has the difference that the recipe's comment names.
func TestGRPCIgnoresProxy(t *testing.T) {
	proxied()
	for _, recipe := range []bool{false, true} {
		saw := checkGRPC(watched(t), t, "dns:///nobody.invalid:443", false, recipe)
		require.NotContains(t, saw, "SERVING")
		require.Equal(t, !recipe, len(proxied()) > 0)
	}
}

func Example_grpc() {
	listener, err := sdp.Listen("tcp", "127.0.0.1:0") // was net.Listen
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), GRPC(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	reply, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(), nil)
	fmt.Println(reply.GetStatus(), err)
	// Output: SERVING <nil>
}
