package fleet

import (
	"context"
	"sync"

	"github.com/gmemtop/gmemtop/capture/bus"
)

// Losses counts the steps that nodes had to drop because the hub took nothing. The zero value is ready.
type Losses struct {
	mu    sync.Mutex
	nodes map[string]lossesOf
}

type lossesOf struct {
	host  string
	steps int64
}

// Run listens to the nodes until ctx is done.
func (l *Losses) Run(ctx context.Context, c *bus.Conn) { c.Read(ctx, l.take, nil, bus.Hello) }

func (l *Losses) take(m bus.Message) {
	h, err := readHello(m.Data)
	if err != nil {
		return // the viewer says so
	}
	x := lossesOf{host: h.Host}
	for i := range h.Ranks {
		x.steps += h.Ranks[i].Dropped
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes == nil {
		l.nodes = map[string]lossesOf{}
	}
	l.nodes[m.Node] = x
}

// Sum returns how many steps all nodes have dropped, and the host that has dropped the most.
func (l *Losses) Sum() (steps int64, worst string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := int64(0)
	for _, n := range l.nodes {
		steps += n.steps
		if n.steps > most {
			most, worst = n.steps, n.host
		}
	}
	return steps, worst
}
