module github.com/inflight-go/inflight/bench

go 1.25.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/go-chi/chi/v5 v5.5.0
	github.com/inflight-go/inflight v0.0.0
	golang.org/x/sync v0.20.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
)

replace github.com/inflight-go/inflight => ../
