package inflight

// Gates is how many limits the registry keeps count of. Only those that somebody holds or waits at may be among them,
// and the total, which is not counted here.
func (r *Registry) Gates() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, gates := range r.gates {
		n += len(gates)
	}
	return n
}

// WhileLocked calls f while nobody else can have the registry's lock.
func (r *Registry) WhileLocked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}
