package pytorch

import (
	"context"
	"errors"

	"github.com/gmemtop/gmemtop/capture"
)

// hear passes on what the guest orders until it goes.
func (g *guest) hear(ctx context.Context) {
	for {
		k, payload, err := readFrame(g.conn, maxOrder)
		if err != nil {
			return
		}
		if k == framePlan {
			g.answer(g.carry(ctx, payload))
			continue
		}
		order, err := read[ask](payload)
		if err != nil {
			return
		}
		switch k {
		case frameDescribe:
			err = g.describe(ctx, order)
		case frameEvery:
			err = g.relay.control.Every(ctx, order.N)
		case frameDepth:
			err = g.relay.control.Depth(ctx, order.How)
		case frameDetach:
			g.mu.Lock()
			g.left = true
			g.mu.Unlock()
		}
		g.answer(err)
	}
}

// answer has the guest told that what it ordered was not asked of the job.
func (g *guest) answer(err error) {
	if err != nil {
		g.mu.Lock()
		g.answers = append(g.answers[max(len(g.answers)-15, 0):], notice{Key: "order", Text: "the job was not asked: " + err.Error()})
		g.mu.Unlock()
	}
}

func (g *guest) describe(ctx context.Context, order ask) error {
	c, carries := g.relay.control.(capture.Carrier)
	switch {
	case !order.Saves && order.How == "":
		return g.relay.control.Describe(ctx, order.Steps)
	case !carries:
		return errNoCarrier
	case order.Saves:
		return c.DescribeSaves(ctx, order.Steps)
	}
	return c.DescribeEvents(ctx, order.Steps, order.Library)
}

func (g *guest) carry(ctx context.Context, payload []byte) error {
	o, err := read[order](payload)
	if err != nil {
		return err
	}
	c, ok := g.relay.control.(capture.Carrier)
	if !ok {
		return errNoCarrier
	}
	if o.Keep {
		return c.Keep(ctx)
	}
	return c.Carry(ctx, o.ID, o.Plan)
}

var errNoCarrier = errors.New("what is watched carries no plans out")
