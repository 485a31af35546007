package whatif_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/replay/fidelity"
	"github.com/gmemtop/gmemtop/replay/whatif"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

var update = flag.Bool("update", false, "rewrite the expected tables of testdata")

// failed returns the autopsy's out-of-memory.
func failed(t testing.TB, d *timeline.Device) timeline.Moment {
	t.Helper()
	a, err := autopsy.Of(context.Background(), d, timeline.IEC)
	if err != nil {
		t.Fatal(err)
	}
	if a.OOM {
		return a.At
	}
	return timeline.Start
}

func answer(t testing.TB, d *timeline.Device, o whatif.Options) *whatif.Result {
	t.Helper()
	r, err := whatif.Allocator(context.Background(), d, failed(t, d), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func table(r *whatif.Result) string {
	var b strings.Builder
	u := timeline.IEC
	limit := "no limit"
	if r.Capacity > 0 {
		limit = u.Bytes(r.Capacity)
		if r.CapacityAtLeast {
			limit = "at least " + limit
		}
	}
	fmt.Fprintf(&b, "capacity %s", limit)
	if r.Failed != timeline.Start {
		fmt.Fprintf(&b, ", event %d failed", r.Failed)
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "settings\tcompletes\tserved\tpeak reserved\tsmallest "+
		"cap\tspare\tcalls\tretries\texactness\t\n")
	for _, o := range append([]whatif.Outcome{r.Recorded}, r.Outcomes...) {
		name, served, spare := o.Option, "-", "-"
		if o.Name == whatif.Recorded {
			name = "recorded"
		}
		if r.Failed != timeline.Start {
			served = fmt.Sprint(o.Served)
		}
		if n, ok := r.Spare(&o); ok {
			spare = u.Bytes(n)
		}
		fmt.Fprintf(w, "%s\t%t\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t\n", name, o.Completes, served,
			u.Bytes(o.PeakReserved), u.Bytes(o.SmallestCap), spare,
			o.DriverCalls, o.Retries, o.Exactness)
	}
	w.Flush()
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

// Each case of testdata is a program, see recorder, and what other settings would have made of it.
func TestPrograms(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil || len(a.Files) != 2 {
				t.Fatalf("%v: %d files, want a program and its table", err, len(a.Files))
			}
			r := answer(t, record(t, string(a.Files[0].Data)), whatif.Options{})
			got := table(r)
			if *update {
				a.Files[1].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want := string(a.Files[1].Data); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// program writes a random program of growing and shrinking blocks under a capacity.
func program(seed uint64, conf string, capacity string) string {
	rng := rand.New(rand.NewPCG(seed, 7))
	var b strings.Builder
	if conf != "" {
		fmt.Fprintf(&b, "conf %s\n", conf)
	}
	if capacity != "" {
		fmt.Fprintf(&b, "capacity %s\n", capacity)
	}
	var live []int
	for i := range 600 {
		if rng.IntN(2) == 0 || len(live) == 0 {
			fmt.Fprintf(&b, "malloc b%d %d stream=%d\n", i, 1+rng.Int64N(int64(1)<<(10+rng.IntN(16))),
				rng.IntN(2)*rng.IntN(2))
			live = append(live, i)
			continue
		}
		k := rng.IntN(len(live))
		word := "free"
		if rng.IntN(6) == 0 {
			word = "later"
		}
		fmt.Fprintf(&b, "%s b%d\n", word, live[k])
		live = append(live[:k], live[k+1:]...)
		switch rng.IntN(40) {
		case 0:
			b.WriteString("done\n")
		case 1:
			b.WriteString("empty_cache\n")
		}
	}
	return b.String()
}

var programs = []struct{ conf, capacity string }{
	{"", ""}, {"", "256m"}, {"expandable_segments:True", ""}, {"expandable_segments:True", "256m"},
	{"max_split_size_mb:24", "256m"},
	{"roundup_power2_divisions:4", ""},
}

func TestTheRecordedSettingsReproduceTheRecordedPeakUnderAnyLimitItFitsIn(t *testing.T) {
	for _, p := range programs {
		// the last three empty the cache twice, and reserve ranges where others were
		for _, seed := range []uint64{0, 1, 2, 9, 14, 25} {
			d := record(t, program(seed, p.conf, p.capacity))
			for _, capacity := range []int64{0, d.Totals.PeakReserved.Or(0)} {
				r := answer(t, d, whatif.Options{Capacity: capacity, Candidates: []whatif.Candidate{}})
				if r.Fidelity.Score() != 1 || r.Fidelity.SegmentScore() != 1 {
					t.Errorf("%v, seed %d: %s", p, seed, r.Fidelity.Sentence(timeline.IEC))
				}
				if r.Recorded.Exactness != timeline.Exact {
					t.Errorf("%v, seed %d: not exact: %s", p, seed, r.Notes)
				}
				if !r.Recorded.Completes || r.Recorded.PeakReserved != d.Totals.PeakReserved.Or(0) {
					t.Errorf("%v, seed %d, capacity %d: completes %t, peak %d, recorded %d", p, seed,
						capacity, r.Recorded.Completes,
						r.Recorded.PeakReserved, d.Totals.PeakReserved.Or(0))
				}
				if r.Failed != timeline.Start && r.Recorded.Served {
					t.Errorf("%v, seed %d: the failed request is served", p, seed)
				}
			}
		}
	}
}

func TestARunCompletesInItsSmallestCapAndHoldsNoMore(t *testing.T) {
	for _, p := range programs {
		d := record(t, program(2, p.conf, p.capacity))
		first := answer(t, d, whatif.Options{})
		for _, o := range first.Outcomes {
			if o.SmallestCap == 0 {
				t.Fatalf("%s: no smallest cap", o.Option)
			}
			again := answer(t, d, whatif.Options{Capacity: o.SmallestCap,
				Candidates: []whatif.Candidate{o.Candidate}})
			is := again.Outcomes[0]
			if !is.Completes || is.PeakReserved > o.SmallestCap || first.Failed != timeline.Start &&
				!is.Served {
				t.Errorf("%v, %s: in its smallest cap of %d: %+v", p, o.Option, o.SmallestCap, is)
			}
			if is.SmallestCap > o.SmallestCap {
				t.Errorf("%v, %s: asked again it needs %d, before %d", p, o.Option, is.SmallestCap,
					o.SmallestCap)
			}
		}
	}
}

func TestTheSameRecordingHasTheSameAnswer(t *testing.T) {
	d := record(t, program(3, "", "256m"))
	if one, two := table(answer(t, d, whatif.Options{})), table(answer(t, d, whatif.Options{})); one != two {
		t.Errorf("%s\n%s", one, two)
	}
}

func TestWorkBoundsWhatIsPlayed(t *testing.T) {
	d := record(t, program(3, "", ""))
	if _, err := whatif.Allocator(context.Background(), d, timeline.Start, whatif.Options{Work: 100}); !errors.Is(err, whatif.ErrTooLong) {
		t.Errorf("got %v", err)
	}
	r := answer(t, d, whatif.Options{Work: int64(d.Len() * 4)})
	if len(r.Outcomes) == 0 || r.Outcomes[len(r.Outcomes)-1].SmallestCap != 0 {
		t.Errorf("with little work:\n%s", table(r))
	}
}

func TestACancelledAnswerStops(t *testing.T) {
	d := record(t, program(3, "", ""))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := whatif.Allocator(ctx, d, timeline.Start, whatif.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestWhatCannotBeReplayedIsRefused(t *testing.T) {
	b := traces.NewBuilder()
	b.Device(traces.DeviceGPU, 0)
	b.T.Final.Known = true
	tl, err := timeline.Build(context.Background(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := whatif.Allocator(context.Background(), tl.Devices[0], timeline.Start, whatif.Options{}); !errors.Is(err, fidelity.ErrRefused) {
		t.Errorf("got %v", err)
	}
	d := record(t, program(3, "roundup_power2_divisions:4", ""))
	d.Timeline().Trace.Settings = nil // the defaults do not explain it
	if _, err := whatif.Allocator(context.Background(), d, timeline.Start, whatif.Options{}); !errors.Is(err, whatif.ErrUnproven) {
		t.Errorf("got %v", err)
	}
	if _, err := whatif.Allocator(context.Background(), d, 0, whatif.Options{}); err == nil {
		t.Error("event 0 passes for an out-of-memory")
	}
}

// The recorded settings reproduce the recorded peak of every snapshot that others recorded and that can be
// replayed.
func TestRecordedSnapshots(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: recorded snapshots to try other settings on")
	}
	paths, err := filepath.Glob(filepath.Join(root, "torch_snapshot", "*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("GMEMTOP_TRACES has no torch_snapshot folder: %v", err)
	}
	answered := 0
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := torchsnapshot.Read(context.Background(), file, nil)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		tl, err := timeline.Build(context.Background(), tr, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := tl.Devices[0]
		r, err := whatif.Allocator(context.Background(), d, failed(t, d), whatif.Options{})
		if errors.Is(err, fidelity.ErrRefused) {
			continue
		}
		if err != nil {
			t.Errorf("%d events: %v", d.Totals.Events, err)
			continue
		}
		answered++
		t.Logf("%d events, from empty %t\n%s", d.Totals.Events, r.Fidelity.FromEmpty, table(r))
		if r.Recorded.PeakReserved != d.Totals.PeakReserved.Or(0) || !r.Recorded.Completes {
			t.Errorf("%d events: recorded peak %d, played %d", d.Totals.Events, d.Totals.PeakReserved.Or(0), r.Recorded.PeakReserved)
		}
	}
	if answered != 8 {
		t.Errorf("%d snapshots answered, want 8", answered)
	}
}

// FuzzAllocator answers for random programs whose beginning may be lost: figures that are said to be exact
// obey the law of the recorded peak.
func FuzzAllocator(f *testing.F) {
	f.Add(uint64(1), byte(0), uint16(0), uint16(0))
	f.Add(uint64(2), byte(1), uint16(300), uint16(100))
	f.Add(uint64(9), byte(3), uint16(200), uint16(400))
	f.Fuzz(func(t *testing.T, seed uint64, conf byte, capacity, lose uint16) {
		text := program(seed, programs[int(conf)%len(programs)].conf, "")
		if capacity > 0 {
			text = fmt.Sprintf("capacity %dm\n%s", capacity, text)
		}
		d := record(t, fmt.Sprintf("%s\nlose %d", text, lose%1000))
		r, err := whatif.Allocator(context.Background(), d, failed(t, d), whatif.Options{Work: 200_000})
		if errors.Is(err, fidelity.ErrRefused) || errors.Is(err, whatif.ErrUnproven) || errors.Is(err, whatif.ErrTooLong) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Recorded.Exactness == timeline.Exact && r.Failed == timeline.Start && r.Recorded.PeakReserved != r.Fidelity.PeakReserved {
			t.Errorf("recorded peak %d, played %d\n%s", r.Fidelity.PeakReserved, r.Recorded.PeakReserved, table(r))
		}
		for _, o := range append(r.Outcomes, r.Recorded) {
			if r.Capacity > 0 && o.PeakReserved > r.Capacity && r.FromStart || o.SmallestCap > 0 && o.Completes && r.Failed == timeline.Start && o.SmallestCap > o.PeakReserved {
				t.Errorf("%s: %+v", o.Option, o)
			}
		}
	})
}

func BenchmarkAllocator(b *testing.B) {
	d := record(b, program(1, "", ""))
	for b.Loop() {
		if _, err := whatif.Allocator(context.Background(), d, timeline.Start, whatif.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(d.Len()), "events")
}
