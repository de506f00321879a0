package grpcinflight

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/inflight-go/inflight"
)

// A refusalError is the reason why a call was not admitted, and the status that is all a client may see of it. Its text
// is that of the status too: gRPC sends the text of an error that wraps a status.
type refusalError struct {
	reason   error
	status   *status.Status
	pushback string // for gRPC's own retries, in milliseconds; "-1" forbids them, empty leaves them to the client
}

func (e *refusalError) Error() string              { return e.status.Err().Error() }
func (e *refusalError) GRPCStatus() *status.Status { return e.status }
func (e *refusalError) Unwrap() error              { return e.reason }

// trailer tells gRPC's own retries when to come again.
func (e *refusalError) trailer() metadata.MD {
	if e.pushback == "" {
		return nil
	}
	return metadata.Pairs("grpc-retry-pushback-ms", e.pushback)
}

// refuse judges an error as inflight.StatusOf does.
func refuse(reason error) *refusalError {
	e := &refusalError{reason: reason}
	switch inflight.StatusOf(reason) {
	case http.StatusTooManyRequests:
		e.status = status.New(codes.ResourceExhausted, "too many requests in flight")
	case http.StatusServiceUnavailable:
		e.status = status.New(codes.Unavailable, "the call cannot be taken now")
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		e.status = status.New(codes.InvalidArgument, "the call does not say what it is for")
		return e
	case 499: // the client has gone
		e.status = status.New(codes.Canceled, "the call was cancelled")
		return e
	case http.StatusGatewayTimeout:
		e.status = status.New(codes.DeadlineExceeded, "the call timed out while it waited for its turn")
		return e
	default:
		e.status = status.New(codes.Internal, "internal error")
		return e
	}

	// A weight above the limit, and every weight is above a blocked one, stays too heavy.
	var limit *inflight.LimitError
	if errors.As(reason, &limit) && limit.Weight > limit.Limit {
		e.pushback = "-1"
		return e
	}
	delay := retryAfter(reason)
	e.pushback = strconv.FormatInt((delay + time.Millisecond - 1).Milliseconds(), 10)
	if s, err := e.status.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}); err == nil {
		e.status = s
	}
	return e
}

// retryAfter is how long to wait before the next attempt.
func retryAfter(err error) time.Duration {
	var hint interface{ RetryAfter() time.Duration }
	if errors.As(err, &hint) {
		if d := hint.RetryAfter(); d > 0 {
			return d
		}
	}
	return time.Second
}
