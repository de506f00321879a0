package inflight
