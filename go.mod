module github.com/inflight-go/inflight

go 1.25.0
