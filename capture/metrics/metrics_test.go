package metrics_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/metrics"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// ranks returns a job: rank 0 was started again, rank 1 is silent and has lost steps, a process has
// no rank.
func ranks(t *testing.T) *job.Job {
	t.Helper()
	first := job.NewWatch(job.Options{})
	j := job.New(first)
	t.Cleanup(func() { _ = j.Close() })
	at := func(rank maybe.Int, host string) capture.Info {
		t := capture.Info{PID: 1, Rank: rank, Host: host, Remote: true, Device: "cpu",
			GPUs: []traces.Device{{Ordinal: 0, TotalBytes: 24}, {Ordinal: 1, TotalBytes: 80}}}
		if rank == maybe.Known(0) {
			t.Device = "cuda:1"
		}
		return t
	}
	step := func(i int64) capture.Step {
		return capture.Step{Index: i, Start: 1_000_000_000, End: 1_500_000_000, Allocated: maybe.Known(40 +
			i),
			PeakAllocated: maybe.Known(60), Reserved: maybe.Known(70), RSS: maybe.Known(5),
			Retries: maybe.Known(2), OOMs: maybe.Known(1)}
	}
	old := first.Process
	old.Begin(at(maybe.Known(0), "n\"0\xff"))
	old.Step(step(90))
	again := j.Add(at(maybe.Known(0), "n\"0\xff"), nil)
	again.Begin(at(maybe.Known(0), "n\"0\xff"))
	again.Step(step(0))
	again.Step(step(1))
	silent := j.Add(at(maybe.Known(1), "n1"), nil)
	silent.Begin(at(maybe.Known(1), "n1"))
	silent.Step(capture.Step{Index: 6, Start: 5, End: 9})
	silent.Lose("steps", 4, "late")
	silent.History.Sever("lost: nothing from n1 for 40s", true)
	other := j.Add(at(maybe.Int{}, "n2"), nil)
	other.Begin(at(maybe.Int{}, "n2"))
	other.Step(capture.Step{Start: 1_000_000_000, End: 2_000_000_000})
	return j
}

// wanted is the series of that job in Prometheus's text format.
func wanted(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/want.prom")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The newest process of a rank counts; what is unknown has no series; names are Prometheus's own kind.
func TestTheSeriesOfAJob(t *testing.T) {
	c := metrics.Collector("r", ranks(t))
	all := prometheus.NewPedanticRegistry()
	all.MustRegister(c)
	families, err := all.Gather()
	var got strings.Builder
	for _, f := range families {
		_, failed := expfmt.MetricFamilyToText(&got, f)
		err = errors.Join(err, failed)
	}
	if err != nil || got.String() != wanted(t) {
		t.Errorf("%v\n%s", err, got.String())
	}
	problems, err := testutil.CollectAndLint(c)
	if err != nil || len(problems) > 0 {
		t.Errorf("names: %v %v", []promlint.Problem(problems), err)
	}
}

func TestMetricsAreServedOnThisMachineOnly(t *testing.T) {
	j := ranks(t)
	for _, address := range []string{":9464", "0.0.0.0:0", "[::]:0", "192.0.2.1:9464", "example.org:9464"} {
		if s, err := metrics.Serve(address, "r", j); !errors.Is(err, metrics.ErrOpen) {
			t.Errorf("%s: %v", address, err)
			if s != nil {
				s.Close()
			}
		}
	}
	if _, err := metrics.Serve("9464", "r", j); err == nil || !strings.Contains(err.Error(),
		"not an address") {
		t.Errorf("no address: %v", err)
	}
	s, err := metrics.Serve("127.0.0.1:0", "r", j)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path, host string) (int, string) {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+s.Address()+path,
			nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(text)
	}
	for _, x := range []struct {
		path, host string
		code       int
		text       string
	}{
		{"/metrics", s.Address(), 200, "\ngmemtop_rank_steps_total{node=\"n1\",rank=\"1\",run=\"r\"} 7\n"},
		{"/metrics", "localhost", 200, "gmemtop_rank_up"}, {"/metrics", "[::1]:80", 200, "gmemtop_rank_up"},
		{"/metrics", "example.org", 403, "for this machine"}, {"/", s.Address(), 404, ""},
		{"/debug/pprof/", s.Address(), 404, ""},
	} {
		if code, text := ask(x.path, x.host); code != x.code || !strings.Contains(text, x.text) {
			t.Errorf("%s of %s: %d %s", x.path, x.host, code, text)
		}
	}
	s.Close()
	s2, err := metrics.Serve(s.Address(), "r", j)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	s2.Close()
}

// The dashboard asks for every series, and for none that there is not.
func TestTheDashboardKnowsTheSeries(t *testing.T) {
	text, err := os.ReadFile("../../packaging/grafana/gmemtop.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`gmemtop_\w+`)
	asked, ids := map[string]bool{}, map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || len(p.Targets) == 0 {
			t.Errorf("panel %d is there twice or asks for nothing", p.ID)
		}
		ids[p.ID] = true
		for _, x := range p.Targets {
			for _, n := range names.FindAllString(x.Expr, -1) {
				asked[n] = true
			}
		}
	}
	there := map[string]bool{}
	for _, line := range regexp.MustCompile(`# TYPE (gmemtop_\w+)`).FindAllStringSubmatch(wanted(t), -1) {
		there[line[1]] = true
	}
	if !reflect.DeepEqual(asked, there) {
		t.Errorf("the dashboard asks for %v, there are %v", asked, there)
	}
}
