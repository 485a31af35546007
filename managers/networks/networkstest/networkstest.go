// Package networkstest makes problems of well-known networks for tests.
package networkstest

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// Problem returns a training step of the named network at a batch size, on the named hardware.
func Problem(tb testing.TB, network string, batch int, card string) *plan.Problem {
	tb.Helper()
	n, err := networks.ByName(network)
	if err != nil {
		tb.Fatal(err)
	}
	h, err := hardware.ByName(card)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := n.Problem(batch, h, networks.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}
