package harness

import (
	"context"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The service has two methods, which use message types of protobuf itself: Echo
// returns its request, Sink counts the messages of a stream.
const (
	grpcService = "gosdp.bench.Messages"
	echoMethod  = "/" + grpcService + "/Echo"
	sinkMethod  = "/" + grpcService + "/Sink"
)

var sinkStream = grpc.StreamDesc{StreamName: "Sink", Handler: sink, ClientStreams: true}

var grpcMethods = grpc.ServiceDesc{
	ServiceName: grpcService,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Echo",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			message := new(wrapperspb.BytesValue)
			return message, decode(message)
		},
	}},
	Streams: []grpc.StreamDesc{sinkStream},
}

// sink reads a stream to its end and replies with the number of messages.
func sink(_ any, stream grpc.ServerStream) error {
	message := new(wrapperspb.BytesValue)
	for n := 0; ; n++ {
		err := stream.RecvMsg(message)
		if err == io.EOF {
			return stream.SendMsg(wrapperspb.Int64(int64(n)))
		}
		if err != nil {
			return err
		}
		if size := len(message.Value); !intact(message.Value, n*size, size) {
			return errWrongData
		}
	}
}

func serveGRPC(listener net.Listener) error {
	server := grpc.NewServer()
	server.RegisterService(&grpcMethods, nil)
	return server.Serve(listener)
}

// dialGRPC returns a client with one connection.
func dialGRPC(to target, pool *pool) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///bench",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return pool.add(to.dial(ctx))
		}))
}

// unaryCalls makes one call after the other.
type unaryCalls struct {
	conn  *grpc.ClientConn
	size  int
	pool  pool
	moves bool
}

func openGRPC(_ context.Context, to target, c Case) (load, error) {
	u := &unaryCalls{size: c.Size, moves: to.Moves}
	var err error
	u.conn, err = dialGRPC(to, &u.pool)
	return u, err
}

func (u *unaryCalls) prepare() error {
	if !u.moves {
		return nil
	}
	return u.pool.settle(u.run, 10)
}

// openGRPCInside dials a server in this process instead of the one in the other process.
func openGRPCInside(ctx context.Context, to target, c Case) (load, error) {
	listener, err := to.Listen(loopback)
	if err != nil {
		return nil, err
	}
	to.address = listener.Addr().String()
	to.Moves = false       // connections within a process stay on TCP
	go serveGRPC(listener) // until the process ends
	return openGRPC(ctx, to, c)
}

func (u *unaryCalls) run(n int, times *times) error {
	timer := times.shard(0)
	request := wrapperspb.Bytes(make([]byte, u.size))
	reply := new(wrapperspb.BytesValue)
	timer.start()
	for k := range n {
		fill(request.Value, k)
		if err := u.conn.Invoke(context.Background(), echoMethod, request, reply); err != nil {
			return err
		}
		if len(reply.Value) != u.size || !intact(reply.Value, k*u.size, u.size) {
			return errWrongData
		}
		timer.lap()
	}
	return nil
}

// streamedMessages sends messages on one stream per run.
type streamedMessages struct {
	conn  *grpc.ClientConn
	size  int
	pool  pool
	moves bool
}

func openGRPCStream(_ context.Context, to target, c Case) (load, error) {
	s := &streamedMessages{size: c.Size, moves: to.Moves}
	var err error
	s.conn, err = dialGRPC(to, &s.pool)
	return s, err
}

func (s *streamedMessages) prepare() error {
	if !s.moves {
		return nil
	}
	return s.pool.settle(s.run, 10)
}

func (s *streamedMessages) run(n int, _ *times) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := s.conn.NewStream(ctx, &sinkStream, sinkMethod)
	if err != nil {
		return err
	}
	for k := range n {
		// gRPC keeps a message until it has been sent, so each needs its own memory.
		message := wrapperspb.Bytes(make([]byte, s.size))
		fill(message.Value, k)
		if err := stream.SendMsg(message); err == io.EOF {
			break // RecvMsg returns the reason
		} else if err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	count := new(wrapperspb.Int64Value)
	if err := stream.RecvMsg(count); err != nil {
		return err
	}
	if count.Value != int64(n) {
		return errWrongData
	}
	return nil
}
