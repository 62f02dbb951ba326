package main

import (
	"bytes"
	"context"
	"io"

	"github.com/gosdp/gosdp/examples/grpc/relay"
	"google.golang.org/grpc"
)

// service implements relay.proto.
type service struct {
	relay.UnimplementedRelayServer
	gaveUp chan error // errors with which Waits ended
}

func newService() *service {
	return &service{gaveUp: make(chan error, 16)}
}

func (*service) Echo(_ context.Context, chunk *relay.Chunk) (*relay.Chunk, error) {
	return chunk, nil
}

func (*service) Split(request *relay.SplitRequest, stream grpc.ServerStreamingServer[relay.Chunk]) error {
	for rest := request.Data; len(rest) > 0; {
		n := min(len(rest), max(1, int(request.Size)))
		if err := stream.Send(&relay.Chunk{Data: rest[:n]}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func (*service) Join(stream grpc.ClientStreamingServer[relay.Chunk, relay.Chunk]) error {
	var all bytes.Buffer
	for {
		chunk, err := stream.Recv()
		if err == io.EOF {
			return stream.SendAndClose(&relay.Chunk{Data: all.Bytes()})
		} else if err != nil {
			return err
		}
		all.Write(chunk.Data)
	}
}

func (*service) Chat(stream grpc.BidiStreamingServer[relay.Chunk, relay.Chunk]) error {
	for {
		chunk, err := stream.Recv()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.Send(chunk); err != nil {
			return err
		}
	}
}

func (s *service) Wait(_ *relay.WaitRequest, stream grpc.ServerStreamingServer[relay.Chunk]) error {
	if err := stream.Send(&relay.Chunk{}); err != nil {
		return err
	}
	<-stream.Context().Done()
	err := stream.Context().Err()
	select {
	case s.gaveUp <- err:
	default: // too many results that no client has asked for
	}
	return err
}

func (s *service) GaveUp(ctx context.Context, _ *relay.GaveUpRequest) (*relay.GaveUpReply, error) {
	select {
	case err := <-s.gaveUp:
		return &relay.GaveUpReply{Reason: err.Error()}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
