package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"
)

// invoke runs a command line in this process and returns what it printed and its exit code.
func invoke(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	in, out, errs := file("in"), file("out"), file("err")
	code = newApp(in, out, errs, nil).execute(t.Context(), args)
	text := func(f *os.File) string {
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	return text(out), text(errs), code
}

// variants are made-up runs that exercise what real files may lack.
var variants = map[string]string{
	"plain": "", "cut at the front": "ring steps=5", "out of memory": "oom", "pending frees": "delay steps=6",
	"two devices": "devices=2",
	"expandable":  "expandable steps=4", "cut at the front with pending frees": "ring delay steps=9 seed=5",
	"many steps":                    "steps=80 layers=12 seed=9",
	"cut expandable on two devices": "ring expandable delay devices=2 steps=7 seed=2", "no steps": "steps=0",
	"nothing at all": "steps=0 layers=0",
}

// TestStatsEqualTheReference compares `stats --json` with testdata/reference_stats.py, which was written
// independently of this program.
func TestStatsEqualTheReference(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3: the reference is a Python script")
	}
	dir := t.TempDir()
	var files []string
	for name, words := range variants {
		run, err := newTraining(strings.Fields(words))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "_")+".json")
		if err := os.WriteFile(path, run.json(), 0o666); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	for _, protocol := range []string{"2", "3", "4", "5"} {
		path := filepath.Join(dir, "protocol_"+protocol+".pickle")
		convert := "import json, pickle, sys; pickle.dump(json.load(open(sys.argv[1])), open(sys.argv[2], " +
			"'wb'), int(sys.argv[3]))"
		source := filepath.Join(dir, "cut_expandable_on_two_devices.json")
		out, err := exec.Command("python3", "-c", convert, source, path, protocol).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		files = append(files, path)
	}
	compareWithReference(t, files)
}

// TestStatsEqualTheReferenceOnRealSnapshots does the same on the real files.
func TestStatsEqualTheReferenceOnRealSnapshots(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: real snapshots")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3: the reference is a Python script")
	}
	files, err := filepath.Glob(filepath.Join(root, "torch_snapshot", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("GMEMTOP_TRACES has no torch_snapshot: %v", err)
	}
	compareWithReference(t, files)
}

type deviceFigures = map[string]any

func compareWithReference(t *testing.T, files []string) {
	t.Helper()
	sort.Strings(files)
	out, err := exec.Command("python3", append([]string{"testdata/reference_stats.py"}, files...)...).Output()
	if err != nil {
		t.Fatalf("reference: %v", err)
	}
	want := json.NewDecoder(bytes.NewReader(out))
	keys := 0
	for _, file := range files {
		var ref struct{ Devices []deviceFigures }
		if err := want.Decode(&ref); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := invoke(t, "stats", "--json", "--no-cache", file)
		if code != exitOK {
			t.Errorf("%s: exit code %d: %s", filepath.Base(file), code, stderr)
			continue
		}
		var got struct{ Devices []deviceFigures }
		if err := json.Unmarshal([]byte(stdout), &got); err != nil {
			t.Fatal(err)
		}
		for _, r := range ref.Devices {
			g := sameDevice(got.Devices, r)
			if g == nil {
				t.Errorf("%s: device %v is missing", filepath.Base(file), r["device"])
				continue
			}
			keys += compareFigures(t, filepath.Base(file), "", r, g)
			checkParts(t, filepath.Base(file), g)
		}
	}
	t.Logf("%d figures of %d files are equal or reported", keys, len(files))
	if keys == 0 {
		t.Error("nothing was compared")
	}
}

func sameDevice(list []deviceFigures, d deviceFigures) deviceFigures {
	for _, g := range list {
		if g["device"] == d["device"] && g["device_kind"] == d["device_kind"] {
			return g
		}
	}
	return nil
}

// compareFigures compares every key that the reference has and returns how many there are.
func compareFigures(t *testing.T, file, path string, want, got deviceFigures) (n int) {
	t.Helper()
	for key, w := range want {
		if m, ok := w.(map[string]any); ok {
			g, _ := got[key].(map[string]any)
			n += compareFigures(t, file, path+key+".", m, g)
			continue
		}
		n++
		g, ok := got[key]
		if !ok || !reflect.DeepEqual(g, w) {
			t.Errorf("%s: %s%s is %v, the reference says %v", file, path, key, g, w)
		}
	}
	return n
}

// checkParts checks that active requested + internal + stranded + cached = reserved.
func checkParts(t *testing.T, file string, d deviceFigures) {
	t.Helper()
	for _, key := range []string{"fragmentation", "fragmentation_at_end"} {
		f, ok := d[key].(map[string]any)
		if !ok {
			t.Errorf("%s: no %s", file, key)
			continue
		}
		n := func(k string) float64 { v, _ := f[k].(float64); return v }
		if sum := n("active_requested_bytes") + n("internal_bytes") + n("stranded_bytes") +
			n("cached_bytes"); sum != n("reserved_bytes") {
			t.Errorf("%s: %s: the parts sum to %.0f, reserved is %.0f", file, key, sum, n("reserved_bytes"))
		}
	}
}
