// Slotvet reports slots of package inflight that are not released. Run it on its own or by go vet:
//
//	go install github.com/inflight-go/inflight/slotvet@latest
//	go vet -vettool=$(which slotvet) ./...
//	slotvet -fix ./...
//
// Package analyzer says what it reports.
package main

import (
	"golang.org/x/tools/go/analysis/singlechecker"

	"github.com/inflight-go/inflight/slotvet/analyzer"
)

func main() { singlechecker.Main(analyzer.Analyzer) } // which also answers go vet
