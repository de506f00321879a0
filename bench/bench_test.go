package main

import (
	"runtime"
	"testing"
)

// BenchmarkRows has the rows of the table as benchmarks, for benchstat and profiles. Rows on several CPUs take -cpu.
func BenchmarkRows(b *testing.B) {
	for _, g := range append(acquireGroups(), httpGroups()...) {
		b.Run(g.name, func(b *testing.B) {
			for _, r := range g.rows {
				b.Run(r.name, func(b *testing.B) {
					work, cleanup := r.setup()
					defer cleanup()
					if len(g.cpus) > 0 {
						work = spread(work, runtime.GOMAXPROCS(0))
					}
					b.ReportAllocs()
					b.ResetTimer()
					work(b.N)
				})
			}
		})
	}
}
