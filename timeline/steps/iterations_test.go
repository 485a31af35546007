package steps_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// The authors' own figures for their own traces.
func TestSmartPoolDetectorFindsThePublishedIterations(t *testing.T) {
	for _, c := range []struct {
		role, pattern string
		length        int
	}{
		{"vgg accesses", "papers/*block_fresh_vgg*", 3172},
		{"alexnet pool", "papers/*_alex_20iterations*", 188},
		{"vgg pool", "papers/*_vgg_20iterations*", 1020},
		{"resnet pool", "papers/*_resnet_20iterations*", 1268},
	} {
		t.Run(c.role, func(t *testing.T) {
			d := timelinetest.Paper(t, c.pattern)
			p, ok := steps.SmartPool(d)
			if !ok || p.Length != c.length {
				t.Errorf("period %d (found: %v), published %d", p.Length, ok, c.length)
			}
		})
	}
}

// Both detectors read the same recordings; ours counts allocations and frees only.
func TestOurDetectorAgreesWithSmartPoolsOnTheirTraces(t *testing.T) {
	for _, c := range []struct {
		role, pattern string
		ops           int
	}{
		{"alexnet pool", "papers/*_alex_20iterations*", 188},
		{"vgg pool", "papers/*_vgg_20iterations*", 1020},
		{"resnet pool", "papers/*_resnet_20iterations*", 1268},
	} {
		t.Run(c.role, func(t *testing.T) {
			d := timelinetest.Paper(t, c.pattern)
			it := steps.Of(d)
			if it.Source != steps.FromPeriodicity || len(it.List) < 18 {
				t.Fatalf("%d iterations by %v", len(it.List), it.Source)
			}
			for _, x := range it.List[it.Steady : len(it.List)-1] {
				if got := int(x.End - x.First); !x.Odd && got != c.ops {
					t.Errorf("iteration %d has %d ops, published %d", x.Index, got, c.ops)
				}
			}
		})
	}
}
