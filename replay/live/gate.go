package live

import (
	"context"
	"sync"
)

// The ranks of a training wait for each other inside every step. While one of them is described, or already
// runs under a plan, the steps of all others take longer as well. If another were measured at that time, the
// delay would be taken for an effect of its plan. With a Gate, ranks go from one stretch of the work to the
// next together.
//
// Each rank that takes part has a seat with the number of the stretch that it has reached, and may begin the
// next when all others have reached it too. A rank that is done, refused or gone leaves its seat, and nobody
// waits for it any more. One that joins late begins at the first stretch, and is waited for from then on.
//
// Rejected: one controller that does every stretch for all ranks. A rank that ends, is replanned or joins
// late would be a special case in every stretch.

// Gate makes ranks wait for each other. Its zero value is ready, and it is safe for concurrent use.
type Gate struct {
	mu    sync.Mutex
	seats map[*Seat]int // the stretch that each has reached
	moved *sync.Cond
}

// Seat is one rank's place at a Gate. A nil Seat waits for nobody. Its methods are for one goroutine.
type Seat struct{ gate *Gate }

// Seat returns a seat; Begin takes it.
func (g *Gate) Seat() *Seat { return &Seat{g} }

// open makes a Gate's zero value usable.
func (g *Gate) open() {
	if g.seats == nil {
		g.seats, g.moved = map[*Seat]int{}, sync.NewCond(&g.mu)
	}
}

// move sets a seat's stretch and wakes the waiting ranks.
func (g *Gate) move(s *Seat, stretch int) {
	g.seats[s] = stretch
	g.moved.Broadcast()
}

// Begin takes the seat at the first stretch, or returns it to that.
func (s *Seat) Begin() {
	if s == nil {
		return
	}
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	s.gate.open()
	s.gate.move(s, 0)
}

// Leave gives the seat up: nobody waits for this rank any more.
func (s *Seat) Leave() {
	if s == nil {
		return
	}
	g := s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open()
	delete(g.seats, s)
	g.moved.Broadcast()
}

// Next ends a stretch and waits until all others have reached the next. The error is ctx's.
func (s *Seat) Next(ctx context.Context) error {
	if s == nil {
		return ctx.Err()
	}
	g := s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	stretch, taken := g.seats[s]
	if !taken {
		return ctx.Err()
	}
	stretch++
	g.move(s, stretch)
	defer context.AfterFunc(ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.moved.Broadcast()
	})()
	for g.behind(stretch) && ctx.Err() == nil {
		g.moved.Wait()
	}
	return ctx.Err()
}

// behind reports whether any rank has not reached a stretch yet.
func (g *Gate) behind(stretch int) bool {
	for _, at := range g.seats {
		if at < stretch {
			return true
		}
	}
	return false
}
