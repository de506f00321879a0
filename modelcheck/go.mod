module github.com/inflight-go/inflight/modelcheck

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/inflight-go/inflight v0.0.0
	github.com/stretchr/testify v1.12.1
	pgregory.net/rapid v1.3.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/inflight-go/inflight => ../
