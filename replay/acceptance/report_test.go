package acceptance

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// sample is a report that uses every field.
func sample() *Report {
	return &Report{SchemaVersion: SchemaVersion, Day: "2026-11-22",
		Gmemtop: Build{Version: "v1.2.3-4-gabc", Revision: "0123456789abcdef", Modified: true},
		System:  System{OS: "linux", Arch: "amd64", Kernel: "6.8", Cores: 16},
		GPU: GPU{Name: "NVIDIA H100 80GB HBM3", Memory: 85520809984, Driver: "570.86.15", CUDA: "12.8",
			Count: 8}, Torch: &Torch{Version: "2.15.0+cu132", CUDA: "13.2", Python: "3.11.7"}, Seconds: 480.5,
		Networks: "full",
		Results: []Result{
			{Check: "doctor", Outcome: OK, Seconds: 1, Figures: []Figure{figureOf("nvml", "available", 1)}},
			{Check: "live-gpt2", Outcome: OK, Seconds: 90,
				Figures: []Figure{figure("plans", 2), figureOf("joint", "footprint", 3<<30),
					figureOf("joint", "overhead", 0.031), figureOf("dtr", "footprint", 1<<20)}},
			{Check: "probes", Outcome: Skipped, Reason: "needs root: <path>"},
			{Check: "oom", Outcome: Failed, Seconds: 3, Reason: "it says 12 bytes"},
			{Check: "ranks", Outcome: NotRun, Reason: "no time left"},
		}}
}

func TestAReportComesBackAsItWasWritten(t *testing.T) {
	var first, second bytes.Buffer
	if err := sample().Write(&first); err != nil {
		t.Fatal(err)
	}
	r, err := Read(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(&second); err != nil || first.String() != second.String() {
		t.Errorf("%v\n%s\n%s", err, first.String(), second.String())
	}
}

// A report file with anything besides its fields, or in another form, is refused.
func TestAReportHoldsNothingElse(t *testing.T) {
	for name, change := range map[string]func(*Report){
		"another schema":            func(r *Report) { r.SchemaVersion = 2 },
		"a name as the version":     func(r *Report) { r.Gmemtop.Version = "jane's build" },
		"a path as the driver":      func(r *Report) { r.GPU.Driver = "/usr/lib" },
		"a GPU with a tab":          func(r *Report) { r.GPU.Name = "NVIDIA\tX" },
		"a host name as the kernel": func(r *Report) { r.System.Kernel = "node7" },
		"an unknown check":          func(r *Report) { r.Results[0].Check = "node7" },
		"an unknown figure":         func(r *Report) { r.Results[0].Figures[0].Name = "secret" },
		"an unknown owner":          func(r *Report) { r.Results[0].Figures[0].Of = "jane" },
		"another unit":              func(r *Report) { r.Results[0].Figures[0].Unit = "MiB" },
		"no number":                 func(r *Report) { r.Results[0].Figures[0].Value = math.NaN() },
		"a raw reason":              func(r *Report) { r.Results[3].Reason = "open /home/jane/x.py: gone" },
		"a terminal's code":         func(r *Report) { r.Results[3].Reason = "\x1b[31mred" },
		"an odd outcome":            func(r *Report) { r.Results[3].Outcome = "fine" },
		"a check twice":             func(r *Report) { r.Results[3] = r.Results[0] },
		"other networks":            func(r *Report) { r.Networks = "mine" },
		"torch by name":             func(r *Report) { r.Torch.Version = "jane-fork" },
	} {
		r := sample()
		change(r)
		if err := r.Write(&bytes.Buffer{}); err == nil {
			t.Errorf("%s is written", name)
		}
	}
	var good bytes.Buffer
	if err := sample().Write(&good); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"a further field": strings.Replace(good.String(), `"day"`, `"host": "node7", "day"`, 1),
		"a tail":          good.String() + "{}",
		"nothing":         "",
		"another file":    `{"schema_version": 1, "findings": []}`,
		"too much":        `{"day": "` + strings.Repeat("x", largestReport) + `"}`,
	} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("a file with %s was read", name)
		}
	}
}

func FuzzReadingAReportNeverPanics(f *testing.F) {
	var b bytes.Buffer
	if err := sample().Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := r.Write(&out); err != nil {
			t.Errorf("it is read but not written: %v", err)
		}
		if err := r.WriteText(&out); err != nil {
			t.Error(err)
		}
	})
}

// The summary that users see before they send a report shows everything in it.
func TestTheSummaryShowsEverything(t *testing.T) {
	r := sample()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"NVIDIA H100 80GB HBM3, 81559 MiB, one of 8", "570.86.15", "2.15.0+cu132",
		"3.11.7", "linux/amd64", "6.8", "16 cores", "v1.2.3-4-gabc, with changes", "2026-11-22",
		"joint: footprint 3.00 GiB, step time +3.10 %; dtr: footprint 1.0 MiB", "needs root: <path>",
		"it says 12 bytes", "5 checks: 2 ok, 1 failed, 1 skipped, 1 not run; 8m1s"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	// Every value of the JSON is in the text, except for those that are rounded or named differently there.
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if len(v) != 9 {
		t.Errorf("a report has %d fields: add what is new to WriteText and to this test", len(v))
	}
}

func TestTheDocumentNamesEveryKeyOfAReport(t *testing.T) {
	page, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## doctor --gpu-report FILE\n")
	section, _, _ = strings.Cut(section, "\n## ")
	found := 0
	for _, key := range plantest.JSONKeys(reflect.TypeFor[Report]()) {
		if key == "schema_version" { // every document's
			continue
		}
		if found++; !strings.Contains(section, "`"+key+"`") && !strings.Contains(section, "`"+key+"[]`") {
			t.Errorf("docs/json.md does not say what %q is", key)
		}
	}
	if found < 25 {
		t.Errorf("only %d keys were looked for", found)
	}
}

func TestChecksAndFiguresAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Checks() {
		if seen[c.Name] || c.About == "" || c.Least <= 0 || c.run == nil {
			t.Errorf("%+v", c)
		}
		seen[c.Name] = true
		if public.redact(c.Name) == "" {
			t.Errorf("%s", c.Name)
		}
	}
	for name, x := range vocabulary {
		if !slices.Contains([]string{unitBytes, unitMS, unitS, unitRate, unitShare, unitCount}, x.unit) ||
			x.words == "" {
			t.Errorf("%s: %+v", name, x)
		}
	}
	if public.redact(errNoTime.Error()) != errNoTime.Error() {
		t.Errorf("%q", public.redact(errNoTime.Error()))
	}
}
