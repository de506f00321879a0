// Package modelcheck compares the registry with things that are obviously right. Its behaviour is compared step by step
// with a plain model, made of slices and linear scans. What many goroutines saw at once is compared with what one alone
// could have seen. The package holds tests only, and is a module of its own so that its dependencies burden nobody who
// imports the library.
//
// Both tests take as much more time as they are given:
//
//	go test -race -run Model -rapid.checks=10000
//	go test -race -run Histories -histories=10000
package modelcheck
