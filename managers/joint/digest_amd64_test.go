package joint_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/combine"
	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/swap"
	"github.com/gmemtop/gmemtop/traces"
)

const digests = "testdata/digests.txt"

// TestPlansAreThoseOfTheDigests: tidying the planner changes no plan, not by a bit. A change that is meant to
// find other plans rewrites the digests with -update. Other processors round floating-point products
// differently, so the test runs on this one only.
func TestPlansAreThoseOfTheDigests(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	digest := func(name string, p *plan.Problem, m plan.Manager, r plan.Request) {
		t.Helper()
		pl, err := m.Plan(t.Context(), p, r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h := sha256.New()
		fmt.Fprintln(h, pl.Absences, pl.Reruns, pl.Variants, pl.Steps, pl.Instances, pl.Resident)
		fmt.Fprintln(h, pl.Footprint, pl.LowerBound, pl.SectionBytes, pl.Work, pl.StepBound, pl.Notes)
		fmt.Fprintf(&got, "%-40s %x\n", fmt.Sprintf("%s within %d", name, r.Budget), h.Sum(nil)[:8])
	}
	for seed := range uint64(30) {
		p := plantest.Random(seed, 8+int(seed*7%60))
		if seed%3 == 1 {
			p.Kind = traces.Accesses
		}
		for _, b := range append(budgets(p, 3)[1:], 0) {
			digest(fmt.Sprintf("random %d", seed), p, joint.Joint{}, request(b))
		}
	}
	for seed := range uint64(12) {
		p := joint.Serial(seed, int(seed/2%2))
		digest(fmt.Sprintf("serial %d", seed), p, joint.Joint{}, request(budgets(p, 3)[1]))
	}
	for seed := range uint64(4) {
		p := plantest.Random(seed, 20+int(seed)*5)
		m := joint.New(append(swap.All(), combine.All()...)...)
		digest(fmt.Sprintf("portfolio %d", seed), p, m, request(budgets(p, 3)[1]))
	}
	for _, layers := range []int{4, 40, 400, 1500} {
		p := plantest.Chain(layers, 1<<20, 1_000_000)
		for _, b := range append(budgets(p, 3)[1:], 0) {
			digest(fmt.Sprintf("chain of %d", layers), p, joint.Joint{}, request(b))
		}
	}
	for _, name := range []string{"AlexNet", "VGG-16", "ResNet-50", "OverFeat", "GPT-2 small"} {
		p := joint.Network(t, name)
		for _, b := range budgets(p, 4)[1:3] {
			digest(name, p, joint.Joint{}, request(b))
		}
		p.Hardware.NoEngines = true
		digest(name+" without copy engines", p, joint.Joint{}, request(budgets(p, 3)[1]))
	}
	if *update {
		if err := os.WriteFile(digests, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(digests)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(got.String(), "\n")
	for k, line := range strings.Split(string(want), "\n") {
		if k >= len(lines) || lines[k] != line {
			t.Errorf("want %s", line)
			if k < len(lines) {
				t.Errorf(" got %s", lines[k])
			}
		}
	}
}
