//go:build standin && cuda && linux && cgo

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/replay/acceptance"
)

// skips are the checks that may be skipped here, with the beginning of the reason: tiny networks, timed
// meaninglessly on a CPU, cannot show everything.
var skips = map[string]string{
	"overhead":                 "needs ", // a quieter machine or networks of ordinary size
	"beyond-vgg16":             "needs networks of ordinary size",
	"beyond-vgg16-swapping":    "needs networks of ordinary size",
	"compare-gpt-steps-cpu-60": "needs a larger budget than 60 %",
}

// TestEveryCheckOnTheStandIn runs scripts/gpu-acceptance.sh from its first line to its last, twice: checks
// that passed do not run again.
func TestEveryCheckOnTheStandIn(t *testing.T) {
	lib, python := standintest.Library(t), standintest.Interpreter(t)
	standintest.Computing(t)
	program, err := exec.LookPath("gmemtop") // this binary, under the name that makes it the program
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "new folder")
	m := standin.Machine{Compute: true, Clock: "virtual", Devices: 2}
	script := func() (*acceptance.Report, standintest.Result) {
		t.Helper()
		r := standintest.Run(t, lib, m, "../../scripts/gpu-acceptance.sh", program, folder, python)
		b, err := os.ReadFile(filepath.Join(folder, "report.json"))
		if err != nil {
			t.Fatalf("%v; %v\n%s%s", err, r.Err, r.Stdout, r.Stderr)
		}
		report, err := acceptance.Read(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		private(t, string(b))
		return report, r
	}
	report, did := script()
	t.Logf("%s", did.Stdout)
	for _, p := range did.Reports {
		for _, v := range p.Violations {
			t.Errorf("process %d: %s", p.PID, v)
		}
		for _, u := range p.Uncomputed {
			t.Errorf("process %d: %s has no numbers: %s", p.PID, u.Op, u.Why)
		}
	}
	if did.Err != nil {
		t.Errorf("%v\n%s", did.Err, did.Stderr)
	}
	list := acceptance.Checks()
	if len(report.Results) != len(list) {
		t.Fatalf("%d of %d checks have a result", len(report.Results), len(list))
	}
	for i, x := range report.Results {
		switch {
		case x.Check != list[i].Name:
			t.Errorf("%s where %s was to come", x.Check, list[i].Name)
		case x.Outcome == acceptance.OK:
		case x.Outcome == acceptance.Skipped && skips[x.Check] != "" &&
			strings.HasPrefix(x.Reason, skips[x.Check]):
		case x.Check == "probes" && x.Outcome == acceptance.Skipped && os.Geteuid() != 0: // it needs root
		default:
			t.Errorf("%s: %s", x.Check, x)
			if log, err := os.ReadFile(filepath.Join(folder, x.Check+".log")); err == nil {
				t.Logf("%s", log)
			}
		}
	}
	if report.Networks != "tiny" || !report.GPU.StandIn {
		t.Errorf("%s networks on %+v", report.Networks, report.GPU)
	}
	if t.Failed() {
		return
	}
	again, did := script()
	for i, x := range again.Results {
		if x.Outcome == acceptance.OK && x.Seconds != report.Results[i].Seconds {
			t.Errorf("%s ran again: %s", x.Check, x)
		}
	}
	if did.Err != nil || len(again.Results) != len(list) {
		t.Errorf("%d results the second time; %v\n%s", len(again.Results), did.Err, did.Stderr)
	}
}
