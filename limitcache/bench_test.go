package limitcache_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/limitcache"
)

// A look-up of what is cached is on the way of each acquire.
func BenchmarkLimits(b *testing.B) {
	for _, keys := range []int{1, 10_000} {
		b.Run(strconv.Itoa(keys), func(b *testing.B) {
			cache, err := limitcache.New(limitcache.Config{
				Fetch: func(context.Context, inflight.Key) (inflight.Limits, error) { return inflight.Limits{Key: 8}, nil },
			})
			require.NoError(b, err)
			defer func() { require.NoError(b, cache.Close()) }()
			ks := make([]inflight.Key, keys)
			for i := range ks {
				ks[i] = inflight.Key{Org: "org-" + strconv.Itoa(i), Model: "glm"}
				cache.Limits(ks[i])
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i++; i == keys {
					i = 0
				}
				cache.Limits(ks[i])
			}
		})
	}
}
