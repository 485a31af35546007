package allocator

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/traces"
)

// Private pools. A CUDA graph replays its kernels with the addresses of its capture, so memory handed out
// during a capture must not serve anything else while the graph lives: requests of the capturing streams go
// to a pool of the capture's own, whose blocks are reused within it and whose segments are released only when
// no graph uses the pool any more. A user's MemPool is the same without a capture. During a capture events
// cannot be queried, so delayed frees wait for its end, and the cache cannot be released: a request that the
// driver refuses fails.

type privatePool struct {
	pools int32 // index of the small one, the large one follows
	users int   // use_count
}

// capture sends the requests of one stream, or of all, to a private pool.
type capture struct {
	pool   traces.Pool
	stream Stream
	all    bool
}

// privatePools holds the private pools and what goes to them.
type privatePools struct {
	private  map[traces.Pool]*privatePool
	unused   poolTable // private pools without users
	captures []capture
}

// UsePool adds a user to a private pool, and creates the pool if necessary, so that MallocFrom may name it.
// The zero Pool is the default one and needs no user.
func (a *Caching) UsePool(id traces.Pool) {
	if id == (traces.Pool{}) {
		return
	}
	p := a.private[id]
	if p == nil {
		p = &privatePool{pools: a.addPools(id)}
		a.private[id] = p
	}
	p.users++
}

// HasPool reports whether a private pool exists.
func (p *privatePools) HasPool(id traces.Pool) bool { return p.private[id] != nil }

// dropUser removes a user from a private pool (the graph was destroyed). After the last one the pool's
// unused segments are released whenever the cache is.
func (p *privatePools) dropUser(id traces.Pool) error {
	own := p.private[id]
	if own == nil || own.users == 0 {
		return fmt.Errorf("allocator: private pool %d, %d has no users", id.First, id.Second)
	}
	if own.users--; own.users == 0 {
		p.unused.insert(id)
	}
	return nil
}

// dropPool is dropUser for a user's pool, whose end also releases its unused memory (torch.cuda.MemPool).
func (a *Caching) dropPool(id traces.Pool) error {
	if err := a.dropUser(id); err != nil {
		return err
	}
	p := a.private[id]
	if p.users > 0 {
		return nil
	}
	a.insertDeferred()
	a.stats.Synchronisations++
	a.scratch = a.delayed.waitFor(&a.slab, a.scratch[:0], func(b *block) bool { return b.pool&^1 == p.pools })
	for _, r := range a.scratch {
		a.freed(r)
	}
	done, err := a.releaseUnused(id)
	if done {
		a.unused.erase(a.unused.find(id))
	}
	return err
}

// beginCapture sends the requests of a stream to a private pool until endCapture; the capture is a user of
// the pool.
func (a *Caching) beginCapture(id traces.Pool, stream Stream) error {
	return a.begin(capture{pool: id, stream: stream})
}

func (a *Caching) begin(c capture) error {
	if c.pool == (traces.Pool{}) {
		return fmt.Errorf("allocator: a capture needs a pool of its own")
	}
	for _, other := range a.captures {
		if other.pool == c.pool {
			return fmt.Errorf("allocator: a capture into pool %d, %d is under way", c.pool.First,
				c.pool.Second)
		}
	}
	a.UsePool(c.pool)
	a.captures = append(a.captures, c)
	return nil
}

// enterPool sends all requests to a private pool, which must exist, until leavePool
// (torch.cuda.use_mem_pool).
func (a *Caching) enterPool(id traces.Pool) error {
	if !a.HasPool(id) {
		return fmt.Errorf("allocator: no private pool %d, %d to enter: make it with UsePool", id.First,
			id.Second)
	}
	return a.begin(capture{pool: id, all: true})
}

// leavePool ends what enterPool began.
func (p *privatePools) leavePool(id traces.Pool) error {
	if err := p.endCapture(id); err != nil {
		return err
	}
	return p.dropUser(id)
}

// endCapture ends the capture into a pool. The pool stays until dropUser.
func (p *privatePools) endCapture(id traces.Pool) error {
	for i, c := range p.captures {
		if c.pool == id {
			p.captures = append(p.captures[:i], p.captures[i+1:]...)
			return nil
		}
	}
	return fmt.Errorf("allocator: no capture into pool %d, %d is under way", id.First, id.Second)
}

// capturing reports whether a capture is under way, during which events cannot be queried. A pool entered
// without a capture counts as one in releases that do not distinguish them.
func (a *Caching) capturing() bool {
	for _, c := range a.captures {
		if !c.all || !a.set.follows(poolIsNoCapture) {
			return true
		}
	}
	return false
}

// captured returns the pool of a stream's capture, the default pool if there is none.
func (p *privatePools) captured(stream Stream) traces.Pool {
	for _, c := range slices.Backward(p.captures) {
		if c.all || c.stream == stream {
			return c.pool
		}
	}
	return traces.Pool{}
}

// releasePrivate releases the unused memory of private pools without users, and forgets the pools that are
// then empty.
func (a *Caching) releasePrivate() error {
	for i := a.unused.next(-1); i >= 0; {
		done, err := a.releaseUnused(a.unused.slots[i].pool)
		if err != nil {
			return err
		}
		if done {
			i = a.unused.erase(i)
		} else {
			i = a.unused.next(i)
		}
	}
	return nil
}

// releaseUnused releases the unused memory of a private pool without users, and reports whether the pool was
// empty and forgotten.
func (a *Caching) releaseUnused(id traces.Pool) (bool, error) {
	p := a.private[id]
	if err := a.releasePool(p.pools); err != nil {
		return false, err
	}
	if err := a.releasePool(p.pools + 1); err != nil {
		return false, err
	}
	if a.pools[p.pools].segments+a.pools[p.pools+1].segments > 0 {
		return false, nil
	}
	delete(a.private, id)
	return true, nil
}
