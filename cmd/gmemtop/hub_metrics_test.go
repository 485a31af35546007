//go:build !nobus

package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A hub offers what a node sent to Prometheus, on this machine only, and sends it to OpenTelemetry.
func TestAHubOffersMetrics(t *testing.T) {
	join := filepath.Join(t.TempDir(), "r.join")
	for _, address := range []string{":0", "0.0.0.0:0"} {
		out, err := exec.Command("gmemtop", "hub", "--run", "r1", "--join-file", join, "--metrics",
			address).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "for this machine only: write 127.0.0.1:9464") {
			t.Errorf("%s: %v %s", address, err, out)
		}
		if _, err := os.Stat(join); err == nil {
			t.Error("a hub that did not start leaves its keys behind")
		}
	}
	var sent words
	var key atomic.Value
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		key.Store(r.Header.Get("Authorization"))
		if z, err := gzip.NewReader(r.Body); err == nil {
			_, _ = io.Copy(&sent, z)
		}
	}))
	defer collector.Close()
	ctx, stop := context.WithTimeout(t.Context(), torchtest.Patience(t))
	defer stop()
	hub := exec.CommandContext(ctx, "gmemtop", "hub", "--run", "r1", "--join-file", join, "--metrics",
		"127.0.0.1:0", "--otlp", collector.URL)
	hub.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_HEADERS=authorization=secret")
	said, err := hub.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Start(); err != nil {
		t.Fatal(err)
	}
	lines, url := bufio.NewScanner(said), ""
	for url == "" && lines.Scan() {
		_, url, _ = strings.Cut(lines.Text(), "metrics for Prometheus: ")
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	first := job.NewWatch(job.Options{})
	j := job.New(first)
	first.Process.Begin(capture.Info{PID: 7, Started: 1, Rank: maybe.Known(3), WorldSize: maybe.Known(4),
		Device: "cuda:0", GPUs: []traces.Device{{Kind: traces.DeviceGPU, TotalBytes: 80 << 30}}})
	for i := range int64(5) {
		first.Process.Step(capture.Step{Index: i, Start: i, End: i + 1, Allocated: maybe.Known(100 + i)})
	}
	node := fleet.StartNode(j, fleet.NodeOptions{Identity: fleet.Identity{Node: "n1"}, Join: join,
		Tell: func(s string) { t.Log(s) }})
	const at = "{node=\"n1\",rank=\"3\",run=\"r1\"} "
	text := ""
	whole := func() bool {
		return strings.Contains(text, "gmemtop_rank_allocated_bytes"+at+"104\n") &&
			strings.Contains(text, "gmemtop_rank_device_bytes"+at+"8.589934592e+10\n")
	}
	for ctx.Err() == nil && !whole() {
		time.Sleep(50 * time.Millisecond)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(a.Body)
		if a.Body.Close(); err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	if !whole() {
		t.Errorf("the metrics lack what the node sent: %s", text)
	}
	node.Close()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	_ = hub.Process.Signal(os.Interrupt)
	if err := hub.Wait(); err != nil {
		t.Errorf("the hub: %v", err)
	}
	if key.Load() != "secret" || !strings.Contains(sent.String(), `"gmemtop.rank.allocated"`) ||
		!strings.Contains(sent.String(), `"asInt":"104"`) {
		t.Errorf("the collector, with the key %v, got %s", key.Load(), &sent)
	}
	if _, err := os.Stat(join); err == nil {
		t.Error("the hub leaves its keys behind")
	}
}
