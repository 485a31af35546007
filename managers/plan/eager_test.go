package plan_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// eagerProblem is a training of two layers whose activations are touched again within the forward pass and
// twice in the backward pass:
//
//	0 input  1 x1 = f(x0)  2 x2 = f(x1)  3 look(x1, x2)  4 loss(x2)  5 b2(x1, x2)  6 b1()  7 b0(x1)  8 log(x1)  9 last(x1)
func eagerProblem() (p *plan.Problem, x1, x2 plan.BufferID) {
	b := plantest.New()
	x0 := b.Buffer("x0", 100, timeline.Input)
	x1, x2 = b.Buffer("x1", 100, timeline.Activation), b.Buffer("x2", 100, timeline.Activation)
	g2, g1, g0 := b.Buffer("g2", 100, timeline.Gradient), b.Buffer("g1", 100, timeline.Gradient),
		b.Buffer("g0", 100, timeline.Gradient)
	look := b.Buffer("look", 100, timeline.Activation)
	buf := func(x ...plan.BufferID) []plan.BufferID { return x }
	b.Op("input", traces.PhaseForward, 10, nil, buf(x0))
	b.Op("f1", traces.PhaseForward, 10, buf(x0), buf(x1))
	b.Op("f2", traces.PhaseForward, 10, buf(x1), buf(x2))
	b.Op("look", traces.PhaseForward, 10, buf(x1, x2), buf(look))
	b.Op("loss", traces.PhaseBackward, 10, buf(look), buf(g2))
	b.Op("b2", traces.PhaseBackward, 10, buf(g2, x1, x2), buf(g1))
	b.Op("b1", traces.PhaseBackward, 10, buf(g1, x0, look), buf(g0))
	b.Op("b0", traces.PhaseBackward, 10, buf(g0, x1), nil)
	b.Op("log", traces.PhaseUnknown, 10, buf(x1), nil)
	b.Op("last", traces.PhaseBackward, 10, buf(x1), nil)
	for i := range b.P.Ops { // so that only the executor decides what is rerun
		b.P.Ops[i].Rerunnable = true
		if i == 2 {
			b.P.Ops[i].Variants = []plan.Variant{{Name: "recorded", Duration: 10},
				{Name: "other", Duration: 5}}
		}
	}
	return b.End(), x1, x2
}

func TestEagerPyTorchIsAskedForNoMoreThanItCanDo(t *testing.T) {
	p, x1, x2 := eagerProblem()
	drop := func(b plan.BufferID, after, before plan.OpID) plan.Absence {
		return plan.Absence{Buffer: b, After: after, Release: after + 1, Fetch: before, Before: before,
			How: plan.Recompute}
	}
	good := func() plan.Decisions {
		return plan.Decisions{Absences: []plan.Absence{drop(x1, 3, 5), drop(x2, 3, 5)},
			Reruns: []plan.Rerun{{Before: 5, Ops: []plan.OpID{1, 2}}}}
	}
	for _, c := range []struct {
		name, want string // "" for a plan that PyTorch can carry out
		spoil      func(d *plan.Decisions)
		after      func(pl *plan.Plan) // what is changed in the assembled plan
	}{
		{name: "a region runs again at its first unpack", spoil: func(*plan.Decisions) {}},
		{name: "a saved tensor is copied out and back", spoil: func(d *plan.Decisions) {
			d.Absences = []plan.Absence{{Buffer: x1, After: 3, Release: 4, Fetch: 5, Before: 5}}
			d.Reruns = nil
		}},
		{name: "a discard", want: "overwrites", spoil: func(*plan.Decisions) {}, after: func(pl *plan.Plan) {
			pl.Absences[1].How = plan.Discard
		}},
		{name: "a region loads an input for itself alone", want: "once unpacked, a tensor stays",
			spoil: func(*plan.Decisions) {}, after: func(pl *plan.Plan) {
				pl.Reruns[0].Loads = []plan.Load{{Buffer: x1, Fetch: 5}}
			}},
		{name: "gone within the backward pass as well", want: "leaves after the forward pass",
			spoil: func(d *plan.Decisions) {
				d.Absences = append(d.Absences, plan.Absence{Buffer: x1, After: 5, Release: 6, Fetch: 7,
					Before: 7})
			}},
		{name: "gone twice", want: "leave twice", spoil: func(*plan.Decisions) {},
			after: func(pl *plan.Plan) {
				pl.Absences = append(pl.Absences, pl.Absences[0])
			}},
		{name: "gone within the forward pass", want: "before the forward pass ends",
			spoil: func(d *plan.Decisions) {
				d.Absences = []plan.Absence{{Buffer: x1, After: 2, Release: 3, Fetch: 3, Before: 3}}
				d.Reruns = nil
			}},
		{name: "gone behind an op of no known phase within the backward pass",
			want: "between a forward pass and its backward pass", spoil: func(d *plan.Decisions) {
				d.Absences = []plan.Absence{{Buffer: x1, After: 8, Release: 9, Fetch: 9, Before: 9}}
				d.Reruns = nil
			}},
		{name: "from before its last forward touch", want: "behind its last touch",
			spoil: func(*plan.Decisions) {}, after: func(pl *plan.Plan) {
				pl.Absences[0].After = 2
			}},
		{name: "from an op that does not touch it", want: "behind its last touch",
			spoil: func(*plan.Decisions) {}, after: func(pl *plan.Plan) {
				pl.Absences[0] = drop(0, 2, 6) // x0 was last touched by op 1
			}},
		{name: "from behind its last forward touch", want: "no interval between two touches",
			spoil: func(*plan.Decisions) {}, after: func(pl *plan.Plan) {
				pl.Absences[0].Before = 7
			}},
		{name: "out of order", want: "in order", spoil: func(d *plan.Decisions) {
			// f2 again reads x1, which stays: both orders are sound as far as values go
			d.Absences = []plan.Absence{drop(x2, 3, 5)}
			d.Reruns[0].Ops = []plan.OpID{2, 1}
		}},
		{name: "an op of the backward pass", want: "not of a forward pass", spoil: func(d *plan.Decisions) {
			d.Reruns[0].Ops = []plan.OpID{1, 2, 4}
		}},
		{name: "dropped later than behind its last touch", want: "behind its last touch",
			spoil: func(d *plan.Decisions) {
				d.Absences[0].Release = 5
			}},
		{name: "run again before the first unpack", want: "nothing that they bring back is unpacked",
			spoil: func(d *plan.Decisions) {
				d.Absences[0].Fetch, d.Absences[1].Fetch = 4, 4
				d.Reruns[0].Before = 4
			}},
		{name: "another algorithm", want: "choose the algorithm", spoil: func(d *plan.Decisions) {
			d.Variants = []uint8{0, 0, 1, 0, 0, 0, 0, 0, 0, 0}
		}},
		{name: "sections", want: "a part of a tensor", spoil: func(*plan.Decisions) {},
			after: func(pl *plan.Plan) {
				pl.SectionBytes = 1 << 20
			}},
		{name: "steps that no rerun tells of", want: "no rerun of the plan says so",
			spoil: func(*plan.Decisions) {}, after: func(pl *plan.Plan) {
				pl.Reruns, pl.Absences = nil, nil
			}},
		{name: "a step for an op that its rerun does not have", want: "op 2 runs again, and no rerun",
			spoil: func(*plan.Decisions) {}, after: func(pl *plan.Plan) {
				pl.Reruns[0].Ops = []plan.OpID{1, 3}
			}},
		{name: "a rerun that no step carries out", want: "does not", spoil: func(*plan.Decisions) {},
			after: func(pl *plan.Plan) {
				pl.Reruns[0].Ops = append(pl.Reruns[0].Ops, 3)
			}},
		{name: "copies that no absence tells of", want: "no absence of the plan says so",
			spoil: func(d *plan.Decisions) {
				d.Absences = []plan.Absence{{Buffer: x1, After: 3, Release: 4, Fetch: 5, Before: 5}}
				d.Reruns = nil
			}, after: func(pl *plan.Plan) { pl.Absences = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := good()
			c.spoil(&d)
			pl, err := plan.Assemble(p, d)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := place.Place(context.Background(), p, pl, place.Options{}); err != nil {
				t.Fatal(err)
			}
			if err := plan.Validate(p, pl); err != nil {
				t.Fatalf("the ideal executor cannot either: %v", err)
			}
			pl.Executor = plan.TorchEager
			if c.after != nil {
				c.after(pl)
			}
			switch err := plan.Validate(p, pl); {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (!errors.Is(err, plan.ErrInvalid) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v does not say %q", err, c.want)
			}
		})
	}
}

// TestOnlyModulesForwardOpsRunAgainInEagerPyTorch: a batch is copied to the GPU outside of modules, where a
// training is not watched, and a checkpoint's forward pass is one of the backward pass.
func TestOnlyModulesForwardOpsRunAgainInEagerPyTorch(t *testing.T) {
	recorded := describedStep(allocRow(0, 512, 0, "parameter"), allocRow(1, 512, 10, "input"),
		opRow(10, "aten::_to_copy", "forward", "", `"r":[],"w":[1],"m":[]`),
		allocRow(2, 512, 110, "activation"),
		opRow(110, "aten::mm", "forward", "fc", `"r":[0,1],"w":[2],"m":[]`),
		allocRow(3, 512, 210, "activation"),
		opRow(210, "aten::relu", "backward", "fc", `"r":[2],"w":[3],"m":[]`))
	for eager, want := range map[bool]string{
		false: "aten::_to_copy true, aten::mm true, aten::relu true",
		true:  "aten::_to_copy false, aten::mm true, aten::relu false",
	} {
		p := builtFrom(t, recorded, plan.BuildOptions{Iteration: 0, EagerOnly: eager})
		var got []string
		for i := range p.Ops {
			if op := &p.Ops[i]; op.Recorded > 0 {
				got = append(got, fmt.Sprint(op.Name, " ", op.Rerunnable))
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("for eager PyTorch %t: %s, want %s", eager, text, want)
		}
	}
}

// A discriminator sees a generator's images twice, each time in a forward pass followed by a backward pass.
// Between the two a variable of the program holds them, so dropping them at the first would free nothing.
// They may leave after the second.
func TestWhatALaterForwardPassReadsIsHeldUntilThen(t *testing.T) {
	b := plantest.New()
	z, images := b.Buffer("z", 100, timeline.Input), b.Buffer("images", 100, timeline.Activation)
	buf := func(x ...plan.BufferID) []plan.BufferID { return x }
	b.Op("input", traces.PhaseForward, 10, nil, buf(z))
	b.Op("generate", traces.PhaseForward, 10, buf(z), buf(images))
	b.Op("see", traces.PhaseForward, 10, buf(images), nil)
	b.Op("learn to see", traces.PhaseBackward, 10, buf(images), nil)
	b.Op("see again", traces.PhaseForward, 10, buf(images), nil)
	b.Op("learn to generate", traces.PhaseBackward, 10, buf(images), nil)
	p := b.End()
	away := func(after, before plan.OpID) plan.Absence {
		return plan.Absence{Buffer: images, After: after, Release: after + 1, Fetch: before, Before: before}
	}
	if why := p.EagerRefusal(away(2, 3)).Why; !strings.Contains(why, "a later forward pass") {
		t.Errorf("between the two it says %q", why)
	}
	if why := p.EagerRefusal(away(4, 5)).Why; why != "" {
		t.Errorf("behind the second it says %q", why)
	}
}
