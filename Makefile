GOLANGCI_LINT = v2.15.0

.PHONY: test race lint bench e2e fuzz soak mutate slotvet tools

test:
	go test work

race:
	go test -race work

lint:
	golangci-lint run $$(go list -m -f '{{.Dir}}/...')

bench:
	go run ./bench

e2e:
	go test -C e2e -race -count=1 ./...

fuzz:
	.ci/fuzz 60s

soak:
	go test -C e2e -count=1 -timeout 0 -v -run TestSoak -soak $(or $(SOAK),5m) .

mutate:
	go run ./modelcheck/mutate

slotvet:
	go install ./slotvet
	go vet -vettool=$$(go env GOPATH)/bin/slotvet work

tools:
	go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
