package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gosdp/gosdp/examples/grpc/relay"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// calls are the client's calls. Each returns a description of what it did, and an
// error if the result is wrong.
var calls = []struct {
	name string
	make func(context.Context, relay.RelayClient) (string, error)
}{
	{"unary", unary},
	{"unary, many at once", manyAtOnce},
	{"server streaming", serverStreaming},
	{"client streaming", clientStreaming},
	{"bidirectional streaming", bidirectional},
	{"cancellation", cancellation},
	{"deadline", deadline},
}

const (
	large  = 16 << 20 // bytes in a large message
	pieces = 16       // messages per stream
)

var errChanged = errors.New("received data differs from sent data")

// payload returns n random bytes.
func payload(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func unary(ctx context.Context, client relay.RelayClient) (string, error) {
	for _, n := range []int{0, 1, 64, 64 << 10, large} {
		sent := payload(n)
		got, err := client.Echo(ctx, &relay.Chunk{Data: sent})
		if err != nil {
			return "", err
		}
		if !bytes.Equal(got.Data, sent) {
			return "", errChanged
		}
	}
	return fmt.Sprintf("messages up to %d MB there and back", large>>20), nil
}

func manyAtOnce(ctx context.Context, client relay.RelayClient) (string, error) {
	const callers, each = 16, 25
	errs := make([]error, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			sent := payload(4<<10 + i)
			for range each {
				got, err := client.Echo(ctx, &relay.Chunk{Data: sent})
				if err == nil && !bytes.Equal(got.Data, sent) {
					err = errChanged
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	group.Wait()
	return fmt.Sprintf("%d calls by %d callers", callers*each, callers), errors.Join(errs...)
}

func serverStreaming(ctx context.Context, client relay.RelayClient) (string, error) {
	sent := payload(large)
	stream, err := client.Split(ctx, &relay.SplitRequest{Data: sent, Size: large / pieces})
	if err != nil {
		return "", err
	}
	var got bytes.Buffer
	n := 0
	for ; ; n++ {
		chunk, err := stream.Recv()
		if err == io.EOF {
			break
		} else if err != nil {
			return "", err
		}
		got.Write(chunk.Data)
	}
	if n != pieces || !bytes.Equal(got.Bytes(), sent) {
		return "", errChanged
	}
	return fmt.Sprintf("%d MB came back in %d messages", large>>20, n), nil
}

func clientStreaming(ctx context.Context, client relay.RelayClient) (string, error) {
	stream, err := client.Join(ctx)
	if err != nil {
		return "", err
	}
	sent := payload(large)
	for i := range pieces {
		piece := sent[i*large/pieces : (i+1)*large/pieces]
		if err := stream.Send(&relay.Chunk{Data: piece}); err != nil {
			return "", err
		}
	}
	got, err := stream.CloseAndRecv()
	if err != nil {
		return "", err
	}
	if !bytes.Equal(got.Data, sent) {
		return "", errChanged
	}
	return fmt.Sprintf("%d messages came back as one of %d MB", pieces, large>>20), nil
}

func bidirectional(ctx context.Context, client relay.RelayClient) (string, error) {
	stream, err := client.Chat(ctx)
	if err != nil {
		return "", err
	}
	const turns = 200
	for i := range turns {
		sent := payload(100 * i)
		if err := stream.Send(&relay.Chunk{Data: sent}); err != nil {
			return "", err
		}
		got, err := stream.Recv()
		if err != nil {
			return "", err
		}
		if !bytes.Equal(got.Data, sent) {
			return "", errChanged
		}
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	if _, err := stream.Recv(); err != io.EOF {
		return "", fmt.Errorf("server stream: unexpected end: %v", err)
	}
	return fmt.Sprintf("%d turns on one stream", turns), nil
}

// cancellation cancels a call after the server has begun to answer, and asks the
// server how the call ended there.
func cancellation(ctx context.Context, client relay.RelayClient) (string, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Wait(waiting, &relay.WaitRequest{})
	if err != nil {
		return "", err
	}
	if _, err := stream.Recv(); err != nil {
		return "", err
	}
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		return "", fmt.Errorf("cancelled call: unexpected error: %v", err)
	}
	reply, err := client.GaveUp(ctx, &relay.GaveUpRequest{})
	if err != nil {
		return "", err
	}
	if reply.Reason != context.Canceled.Error() {
		return "", fmt.Errorf("the server saw %q", reply.Reason)
	}
	return fmt.Sprintf("the server saw %q", reply.Reason), nil
}

// deadline makes a call with a deadline that the server would never end.
func deadline(ctx context.Context, client relay.RelayClient) (string, error) {
	const patience = 100 * time.Millisecond
	start := time.Now()
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := client.Wait(waiting, &relay.WaitRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	// gRPC cancels a context of its own when the call's ends, and returns Canceled if it sees that one first.
	if code := status.Code(err); code != codes.DeadlineExceeded && (code != codes.Canceled || waiting.Err() != context.DeadlineExceeded) {
		return "", fmt.Errorf("call past its deadline: unexpected error: %v", err)
	}
	if took := time.Since(start); took < patience {
		return "", fmt.Errorf("call past its deadline: deadline of %v ended after %v", patience, took)
	}
	if _, err := client.Echo(ctx, &relay.Chunk{}); err != nil {
		return "", fmt.Errorf("the next call: %w", err)
	}
	return fmt.Sprintf("gave up after %v, and the next call went through", patience), nil
}
