package networks

import (
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// small plays a network of a few layers.
func small(t *testing.T, o Options, build func(*layers)) *plan.Problem {
	t.Helper()
	n := Network{Name: "small", build: build}
	p, err := n.Problem(2, plan.Hardware{Name: "test", FlopsPerSecond: 1e12, BytesPerSecond: 1e12}, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// accumulations returns, in order, what the ops that add gradients do.
func accumulations(p *plan.Problem) []string {
	var got []string
	for i := range p.Ops {
		if name, ok := strings.CutSuffix(p.Ops[i].Name, ".accumulate"); ok {
			how := "in place"
			if len(p.AccessesOf(plan.OpID(i))) == 3 {
				how = "out of place"
			}
			got = append(got, name+" "+how)
		}
	}
	return got
}

func TestAForkAddsItsGradientsInPlace(t *testing.T) {
	p := small(t, Options{}, func(t *layers) {
		x := t.conv("a", t.images(3, 8, 8), 4, 1, 1, 0, false)
		t.loss(t.linear("fc", t.average("pool", t.add("add", t.conv("b", x, 4, 1, 1, 0, false), x)), 10, true,
			-1))
	})
	if got := accumulations(p); !slices.Equal(got, []string{"a in place"}) {
		t.Errorf("gradients are added: %q, want that of a, in place", got)
	}
}

func TestAGradientThatAnotherTensorStillNeedsIsNotChanged(t *testing.T) {
	// x is added to b's output, whose gradient is then x's too; the gradient that c hands to x arrives before
	// b's backward pass has read it.
	p := small(t, Options{}, func(t *layers) {
		x := t.conv("a", t.images(3, 8, 8), 4, 1, 1, 0, false)
		b := t.conv("b", x, 4, 1, 1, 0, false)
		c := t.conv("c", x, 4, 1, 1, 0, false)
		sum := t.add("add", b, x)
		t.loss(t.linear("fc", t.average("pool", t.concat("cat", sum, c)), 10, true, -1))
	})
	// c's contribution finds the gradient that a shares with b; b's finds the sum, which is a's own.
	if got := accumulations(p); !slices.Equal(got, []string{"a out of place", "a in place"}) {
		t.Errorf("gradients are added: %q, want a's out of place, then in place", got)
	}
}

func TestATiedWeightAddsItsGradients(t *testing.T) {
	n, err := ByName("gpt2-small")
	if err != nil {
		t.Fatal(err)
	}
	p, err := n.Problem(1, plan.Hardware{Name: "test", FlopsPerSecond: 1e12, BytesPerSecond: 1e12},
		Options{Sequence: 16})
	if err != nil {
		t.Fatal(err)
	}
	if got := accumulations(p); !slices.Contains(got, "wte.weight in place") {
		t.Errorf("gradients are added: %q, and not the embedding's", got)
	}
}

func TestATensorThatNothingReadsIsAnErrorOfTheNetwork(t *testing.T) {
	n := Network{Name: "small", build: func(t *layers) {
		x := t.conv("a", t.images(3, 8, 8), 4, 1, 1, 0, false)
		t.conv("forgotten", x, 4, 1, 1, 0, false)
		t.loss(t.linear("fc", x, 10, true, -1))
	}}
	if _, err := n.Problem(2, plan.Hardware{Name: "test", FlopsPerSecond: 1e12, BytesPerSecond: 1e12},
		Options{}); err == nil {
		t.Error("a layer whose output nothing reads was trained")
	}
}

func TestPoolingRoundsAsItsModeSays(t *testing.T) {
	for _, c := range []struct {
		n, kernel, stride, pad int64
		ceil                   bool
		want                   int64
	}{
		{55, 3, 2, 0, false, 27}, {112, 3, 2, 0, true, 56}, {112, 3, 2, 1, false, 56},
		{112, 3, 2, 0, false, 55}, {28, 3, 1, 1, false, 28}, {56, 3, 2, 0, true, 28}, {7, 7, 1, 0, false, 1},
	} {
		if got := pooled(c.n, c.kernel, c.stride, c.pad, c.ceil); got != c.want {
			t.Errorf("pooled(%d, %d, %d, %d, %v) is %d, want %d", c.n, c.kernel, c.stride, c.pad, c.ceil, got,
				c.want)
		}
	}
}
