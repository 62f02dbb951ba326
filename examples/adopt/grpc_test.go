package adopt_test

import (
	"context"
	"fmt"
	"net"

	"github.com/gosdp/gosdp/examples/internal/devices"
	"github.com/gosdp/gosdp/sdp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func Example_grpcServer() {
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := sdp.Listen("tcp", "localhost:0") // adopts SDP; was net.Listen
	check(err)
	go server.Serve(listener)
	defer server.Stop()

	// The same port also serves clients without SDP.
	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer conn.Close()
	reply, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(), nil)
	check(err)
	fmt.Println(reply.Status)
	// Output: SERVING
}

func Example_grpcClient() {
	listener, err := sdp.Listen("tcp", "localhost:0")
	check(err)
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	// gRPC reads options of the listening socket. A client that dials between that and the first
	// Accept, as this one may, uses plain TCP, unless the socket is hidden.
	go server.Serve(struct{ net.Listener }{listener})
	defer server.Stop()

	recorder := devices.Recorder{Dial: new(sdp.Dialer).DialContext}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return recorder.DialContext(ctx, "tcp", address)
	}
	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithContextDialer(dial), // adopts SDP
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer conn.Close()
	reply, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(), nil)
	check(err)
	used, _ := recorder.Used()
	fmt.Println(reply.Status, "over", used)
	// Output: SERVING over [iwarp]
}
