package pytorch

import (
	"context"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/say"
)

// hear passes on what the guest orders until it goes.
func (g *guest) hear(ctx context.Context) {
	for {
		k, payload, err := readFrame(g.conn, maxOrder)
		if err != nil {
			return
		}
		switch k {
		case frameOrder:
			o, err := read[capture.Order](payload)
			if err != nil {
				return
			}
			if err := g.relay.control.Order(ctx, o); err != nil {
				g.notPassedOn(o, err)
			}
		case frameDetach:
			g.mu.Lock()
			g.left = true
			g.mu.Unlock()
			g.more.Tell()
		}
	}
}

// maxRefusals is how many refusals wait for a guest that does not read.
const maxRefusals = 16

// notPassedOn has the guest told that the job never heard its order.
func (g *guest) notPassedOn(o capture.Order, err error) {
	text := say.OrderNotPassed.Text(err)
	defer g.more.Tell()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = append(g.refused[max(len(g.refused)-maxRefusals+1, 0):],
		capture.Answer{
			Order: o.ID, State: capture.OrderRefused, Reason: capture.ReasonUnreachable, Text: text,
		})
}
