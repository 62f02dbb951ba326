// Containers is a server of HTTP and gRPC, and a client that calls it, for two containers of one
// host. With a directory that both mount, named by SDP_SHM_DIR, they use shared memory:
//
//	containers serve -http :8080 -grpc :9090
//	containers call -http server:8080 -grpc server:9090 -times 100
//
// The client prints what has carried its calls. docs/containers.md has manifests for Docker Compose
// and Kubernetes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/gosdp/gosdp/examples/internal/devices"
	"github.com/gosdp/gosdp/sdp"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "containers:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("missing command: serve or call")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	httpAt := flags.String("http", ":8080", "the `address` for HTTP")
	grpcAt := flags.String("grpc", ":9090", "the `address` for gRPC")
	times := flags.Int("times", 100, "how many calls of each kind")
	flags.Parse(args[1:])
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	switch args[0] {
	case "serve":
		return serve(*httpAt, *grpcAt)
	case "call":
		return errors.Join(callHTTP(*httpAt, *times), callGRPC(*grpcAt, *times))
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// serve serves both until the process ends.
func serve(httpAt, grpcAt string) error {
	web, err := sdp.Listen("tcp", httpAt) // the line to change, from net.Listen
	if err != nil {
		return err
	}
	rpc, err := sdp.Listen("tcp", grpcAt)
	if err != nil {
		return err
	}
	fmt.Println("serving")
	failed := make(chan error, 2)
	go func() {
		failed <- http.Serve(web, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "hello\n")
		}))
	}()
	go func() {
		server := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(server, health.NewServer())
		failed <- server.Serve(rpc)
	}()
	return <-failed
}

// callTime limits the time of each call.
const callTime = 10 * time.Second

// callHTTP makes requests on one connection.
func callHTTP(at string, times int) error {
	dialer := devices.Recorder{Dial: new(sdp.Dialer).DialContext}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = dialer.DialContext
	client := http.Client{Transport: transport, Timeout: callTime}
	defer client.CloseIdleConnections()
	for range times {
		answer, err := client.Get("http://" + at + "/")
		if err != nil {
			return err
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK || string(body) != "hello\n" {
			return fmt.Errorf("got %s, %q", answer.Status, body)
		}
	}
	used, n := dialer.Used()
	fmt.Printf("http: %d requests on %d connection over %s\n", times, n, strings.Join(used, ","))
	return nil
}

// callGRPC makes calls on one connection.
func callGRPC(at string, times int) error {
	dialer := devices.Recorder{Dial: new(sdp.Dialer).DialContext}
	conn, err := grpc.NewClient("passthrough:///"+at, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := checkHealth(grpc_health_v1.NewHealthClient(conn), times); err != nil {
		return err
	}
	used, n := dialer.Used()
	fmt.Printf("grpc: %d calls on %d connection over %s\n", times, n, strings.Join(used, ","))
	return nil
}

// checkHealth makes calls.
func checkHealth(client grpc_health_v1.HealthClient, times int) error {
	for range times {
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		_, err := client.Check(ctx, new(grpc_health_v1.HealthCheckRequest))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
