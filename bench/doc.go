// Package bench measures inflight side by side with peers that do part of its work, in one run on one machine, so that
// what counts are the ratios. See README.md.
package bench
