package limitcache

// Firsts returns how many look-ups are noted as waiting.
func (c *Cache) Firsts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.firsts)
}
