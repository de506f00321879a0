package inflight

// Batch is how many WalkSlots and WalkKeys visit under one lock.
const Batch = batch

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

// WalkKeys visits the live keys as Keys does, and calls between after each batch.
func (r *Registry) WalkKeys(between func(), visit func(Key)) {
	walk(r, &r.keys, batch, between, func(g *gate) bool {
		visit(g.key)
		return true
	})
}

// WalkSlots visits the ids of the live slots as Slots does, and calls between after each batch.
func (r *Registry) WalkSlots(between func(), visit func(id uint64)) {
	walk(r, &r.holders, batch, between, func(h *holder) bool {
		visit(h.id)
		return true
	})
}
