package hardware_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/plan"
)

var update = flag.Bool("update", false, "rewrite the golden tables")

func TestNamesAndTablesAreAsInTestdata(t *testing.T) {
	path := filepath.Join("testdata", "presets.txtar")
	ar, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ar.Files {
		f := &ar.Files[i]
		var got string
		switch f.Name {
		case "names":
			continue
		case "found":
			got = found(string(ar.Files[i-1].Data))
		case "table":
			got = table(hardware.Presets())
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

func found(names string) string {
	var b strings.Builder
	for _, name := range strings.Split(strings.TrimSuffix(names, "\n"), "\n") {
		if h, err := hardware.ByName(name); err != nil {
			fmt.Fprintf(&b, "%s: error: %v\n", name, err)
		} else {
			fmt.Fprintf(&b, "%s: %s\n", name, h.Name)
		}
	}
	return b.String()
}

func table(all []plan.Hardware) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 1, 2, ' ', 0)
	fmt.Fprintln(w, "name\tGiB\tout GB/s\tin GB/s\ttogether\tTflop/s\ttype\tTB/s")
	for _, h := range all {
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t%.3f\n", h.Name, h.MemoryBytes>>30,
			h.D2H.BytesPerSecond/1e9,
			h.H2D.BytesPerSecond/1e9, h.Together, h.FlopsPerSecond/1e12, h.FlopsType, h.BytesPerSecond/1e12)
	}
	w.Flush()
	return b.String()
}

func TestEveryPresetIsSoundAndSaysWhereItsFiguresComeFrom(t *testing.T) {
	seen := map[string]bool{}
	for _, h := range hardware.Presets() {
		if err := hardware.Check(h); err != nil {
			t.Error(err)
		}
		if seen[h.Name] {
			t.Errorf("%s is there twice", h.Name)
		}
		seen[h.Name] = true
		if byName, err := hardware.ByName(h.Name); err != nil || byName != h {
			t.Errorf("ByName(%q) is %q, %v", h.Name, byName.Name, err)
		}
		if h.MemoryBytes > 0 {
			for _, word := range []string{"data sheet:", "published:", "assumed:"} {
				if !strings.Contains(h.Origin, word) {
					t.Errorf("the origin of %s lacks %q", h.Name, word)
				}
			}
		}
	}
}

func TestAutoSwapsLinkIsThePublishedFit(t *testing.T) {
	h, err := hardware.ByName("autoswap")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{1 << 20, 25_690_112, 1 << 30} {
		out, in := 47_200+0.0756*float64(n), 9_700+0.0823*float64(n)
		if got := float64(h.D2H.Time(n)); got < out-1 || got > out+1 {
			t.Errorf("%d bytes out take %v ns, published %v", n, got, out)
		}
		if got := float64(h.H2D.Time(n)); got < in-1 || got > in+1 {
			t.Errorf("%d bytes in take %v ns, published %v", n, got, in)
		}
	}
}

func TestWhatIsSavedIsLoadedToTheBit(t *testing.T) {
	for _, h := range hardware.Presets() {
		path := filepath.Join(t.TempDir(), "device.json")
		if err := hardware.Save(path, h); err != nil {
			t.Fatal(err)
		}
		got, err := hardware.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != h {
			t.Errorf("loaded %+v, saved %+v", got, h)
		}
	}
}

func TestAFaultyDescriptionIsRefusedWithWhatToDo(t *testing.T) {
	good, err := hardware.ByName("h200")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fault func(*plan.Hardware)
		say   string
	}{
		{func(h *plan.Hardware) { h.Name = "" }, `set "name"`},
		{func(h *plan.Hardware) { h.Origin = "" }, "say where the figures come from"},
		{func(h *plan.Hardware) { h.D2H.BytesPerSecond = 0 }, `"d2h.bytes_per_s" is 0; set it to`},
		{func(h *plan.Hardware) { h.H2D.BytesPerSecond = -1 }, `"h2d.bytes_per_s" is -1; set it to`},
		{func(h *plan.Hardware) { h.H2D.Latency = -1 }, `"h2d.latency_ns" is -1; set it to`},
		{func(h *plan.Hardware) { h.Together = 0 }, `"together" is 0; set it to`},
		{func(h *plan.Hardware) { h.Together = 1.5 }, `"together" is 1.5; set it to`},
		{func(h *plan.Hardware) { h.MemoryBytes = -1 }, `"memory_bytes" is -1; set it to`},
		{func(h *plan.Hardware) { h.PinnedBytes = 1 << 60 }, `"pinned_bytes" is`},
		{func(h *plan.Hardware) { h.LaunchGap = -5 }, `"launch_ns" is -5; set it to`},
		{func(h *plan.Hardware) { h.FlopsPerSecond = -1 }, `"flops_per_s" is -1; set it to`},
	} {
		h := good
		c.fault(&h)
		err := hardware.Check(h)
		if !errors.Is(err, hardware.ErrInvalid) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("want an error that says %q, got %v", c.say, err)
		}
		if err := hardware.Write(&bytes.Buffer{}, h); !errors.Is(err, hardware.ErrInvalid) {
			t.Errorf("%s: written all the same: %v", c.say, err)
		}
	}
	for text, say := range map[string]string{
		"":                               "EOF",
		"[]":                             "cannot unmarshal array",
		`{"nmae":"x"}`:                   `unknown field "nmae"`,
		`{"name":"x"} {`:                 "one JSON object a file",
		`{"d2h":{"bytes_per_s":"fast"}}`: "cannot unmarshal string",
		strings.Repeat(" ", 1<<21):       "more than",
	} {
		if _, err := hardware.Read(strings.NewReader(text)); !errors.Is(err, hardware.ErrInvalid) ||
			!strings.Contains(err.Error(), say) {
			t.Errorf("%.40q: want an error that says %q, got %v", text, say, err)
		}
	}
}

func TestAFailedSaveLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "device.json")
	h, _ := hardware.ByName("p100")
	if err := hardware.Save(path, h); err != nil {
		t.Fatal(err)
	}
	if err := hardware.Save(path, plan.Hardware{}); !errors.Is(err, hardware.ErrInvalid) {
		t.Errorf("saved an empty description: %v", err)
	}
	if got, err := hardware.Load(path); err != nil || got != h {
		t.Errorf("the old file is gone: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files left, want 1", len(left))
	}
}

func FuzzRead(f *testing.F) {
	for _, h := range hardware.Presets() {
		var b bytes.Buffer
		if err := hardware.Write(&b, h); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := hardware.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := hardware.Write(&b, h); err != nil {
			t.Fatalf("read and not written: %v", err)
		}
		again, err := hardware.Read(&b)
		if err != nil || again.D2H != h.D2H || again.Together != h.Together ||
			again.MemoryBytes != h.MemoryBytes {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}
