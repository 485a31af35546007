package timeline

import (
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/paper"
)

// sharedTrace opens a file of the folder that GMEMTOP_TRACES names, by the pattern of its role, and skips the
// test without the folder.
func sharedTrace(t testing.TB, pattern string) io.Reader {
	t.Helper()
	dir := os.Getenv("GMEMTOP_TRACES")
	if dir == "" {
		t.Skip("needs GMEMTOP_TRACES: traces recorded by others")
	}
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) == 0 {
		t.Skipf("needs %s in the folder that GMEMTOP_TRACES names", pattern)
	}
	f, err := os.Open(found[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if !strings.HasSuffix(found[0], ".gz") {
		return f
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func paperDevice(t testing.TB, pattern string) *Device {
	t.Helper()
	tr, err := paper.Read(context.Background(), sharedTrace(t, pattern), nil)
	if err != nil {
		t.Fatal(err)
	}
	return builtDevice(t, tr)
}

func builtDevice(t testing.TB, tr *traces.Trace) *Device {
	t.Helper()
	tl, err := Build(context.Background(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl.Main()
}

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
			d := paperDevice(t, c.pattern)
			p, ok := d.SmartPoolPeriod()
			if !ok || p.Length != c.length {
				t.Errorf("period %d (found: %v), published %d", p.Length, ok, c.length)
			}
		})
	}
}

// Both detectors look at the same recordings; ours counts allocations and frees only.
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
			d := paperDevice(t, c.pattern)
			it := d.Iterations()
			if it.Source != FromPeriodicity || len(it.List) < 18 {
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
