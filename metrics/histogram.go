package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/inflight-go/inflight"
)

// A Histogram is a prometheus.Metric that holds an inflight.Histogram twice: with classic buckets, which every scraper
// reads, and as a native histogram, which those that ask for protobuf may take instead. Nothing is estimated for that: the
// bounds are the powers of two, and so are those of a native histogram of schema 0. Immutable.
type Histogram struct {
	desc *prometheus.Desc
	of   inflight.Histogram
}

// NewHistogram makes a metric, for collectors of what else has an inflight.Histogram. The bounds must be successive powers
// of two, one at least, and desc must have no variable labels.
func NewHistogram(desc *prometheus.Desc, of inflight.Histogram) Histogram { return Histogram{desc, of} }

// Desc implements prometheus.Metric.
func (h Histogram) Desc() *prometheus.Desc { return h.desc }

// Write implements prometheus.Metric.
func (h Histogram) Write(out *dto.Metric) error {
	classic := make([]*dto.Bucket, len(h.of.Bounds))
	sum := uint64(0)
	for i, bound := range h.of.Bounds {
		sum += h.of.Counts[i]
		classic[i] = &dto.Bucket{UpperBound: proto.Float64(bound), CumulativeCount: proto.Uint64(sum)}
	}

	// Native bucket i ends at 2^i. All up to the lowest bound is near enough to zero to be in the bucket of zeros. All above
	// the highest is in the bucket after it, which says twice that bound: still closer than a classic histogram, which says
	// that bound itself.
	lowest := h.of.Bounds[0]
	_, exp := math.Frexp(lowest)
	deltas := make([]int64, len(h.of.Counts)-1)
	before := uint64(0)
	for i, n := range h.of.Counts[1:] {
		deltas[i] = int64(n - before) //nolint:gosec // counts of slots are far from 2^63, and a difference may be negative
		before = n
	}

	span := &dto.BucketSpan{Offset: proto.Int32(int32(exp)), Length: proto.Uint32(uint32(len(deltas)))} //nolint:gosec // both small

	out.Label = prometheus.MakeLabelPairs(h.desc, nil)
	out.Histogram = &dto.Histogram{
		SampleCount: proto.Uint64(h.of.Count()),
		SampleSum:   proto.Float64(h.of.Sum),
		Bucket:      classic,

		Schema:        proto.Int32(0),
		ZeroThreshold: proto.Float64(lowest),
		ZeroCount:     proto.Uint64(h.of.Counts[0]),
		PositiveSpan:  []*dto.BucketSpan{span},
		PositiveDelta: deltas,
	}
	return nil
}
