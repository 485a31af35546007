package networks_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
)

var update = flag.Bool("update", false, "rewrite the golden tables")

func TestTablesAreAsInTestdata(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden tables: %v", err)
	}
	for _, path := range files {
		ar, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range ar.Files {
			f := &ar.Files[i]
			var got string
			switch kind, rest, _ := strings.Cut(f.Name, " "); kind {
			case "facts":
				got = factsTable(t)
			case "footprints":
				got = footprintTable(t)
			case "ops": // ops <network>, <batch>
				name, batch, _ := strings.Cut(rest, ", ")
				n := 0
				if _, err := fmt.Sscan(batch, &n); err != nil {
					t.Fatalf("%s: %s: %v", path, f.Name, err)
				}
				got = opTable(make1(t, name, n, device(t, "titan-x"), networks.Options{}))
			default:
				t.Fatalf("%s: unknown section %q", path, f.Name)
			}
			if *update {
				f.Data = []byte(got)
			} else if got != string(f.Data) {
				t.Errorf("%s: %s is\n%s\nwant\n%s", path, f.Name, got, f.Data)
			}
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func tabled(write func(w *tabwriter.Writer)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 1, 2, ' ', tabwriter.AlignRight)
	write(w)
	w.Flush()
	lines := strings.SplitAfter(b.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " \n") + "\n"
	}
	return strings.TrimSuffix(strings.Join(lines, ""), "\n")
}

func factsTable(t *testing.T) string {
	return tabled(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "network\tparameters\tGMAC a sample\tops\tbuffers\t")
		for _, n := range networks.All() {
			f, err := n.Facts(networks.Options{})
			if err != nil {
				t.Fatal(err)
			}
			p := make1(t, n.Name, 1, device(t, "titan-x"), networks.Options{})
			fmt.Fprintf(w, "%s\t%d\t%.3f\t%d\t%d\t\n", n.Name, f.Parameters, float64(f.MACs)/1e9, len(p.Ops),
				len(p.Buffers))
		}
	})
}

func footprintTable(t *testing.T) string {
	gb := func(n int64) string { return fmt.Sprintf("%.2f", float64(n)/1e9) }
	return tabled(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "network\tbatch\tfeatures\tweights\tweight gradients\tgradients\tworkspace\ttotal "+
			"GB\tGiB\tstate\tpeak live\t")
		for _, n := range networks.All() {
			for _, batch := range n.Batches {
				p := make1(t, n.Name, batch, device(t, "titan-x"), networks.Options{})
				f := networks.StaticFootprint(p)
				live, _ := p.PeakLive()
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%s\t%s\t\n", n.Name, batch,
					gb(f.Features),
					gb(f.Weights), gb(f.WeightGradients), gb(f.Gradients), gb(f.Workspace), gb(f.Total()),
					float64(f.Total())/(1<<30), gb(f.State), gb(live))
			}
		}
	})
}

// opTable lists an iteration: what each op reads, changes (~) and writes (>), its duration and its variants.
func opTable(p *plan.Problem) string {
	var b strings.Builder
	for i := range p.Ops {
		op := &p.Ops[i]
		fmt.Fprintf(&b, "%-9s %-10s %9d ns  %s:", op.Phase, op.Class, op.Duration, op.Name)
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			fmt.Fprintf(&b, " %s%s", [...]string{"", ">", "~", "?"}[a.Mode], p.Buffers[a.Buffer].Name)
		}
		for _, v := range op.Variants {
			fmt.Fprintf(&b, " [%s %d ns %d B]", v.Name, v.Duration, v.Workspace)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
