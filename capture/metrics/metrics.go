// Package metrics offers the newest figures of a watched job to Prometheus, and sends them to OpenTelemetry
// collectors.
//
// A rank has a fixed number of series, whatever it does: they are for dashboards and alerts. Where memory
// goes within a step is in recordings.
package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// figure is a series of a rank.
type figure struct {
	name, help string
	desc       *prometheus.Desc
	kind       prometheus.ValueType
	of         func(v *capture.View, s *capture.Step) maybe.Int
	per        float64 // how many of the figure make one of the series' unit
}

// labels tell ranks apart. A process that knows no rank has an empty one.
var labels = []string{"run", "rank", "node"}

func gauge(name, help string, per float64, of func(v *capture.View, s *capture.Step) maybe.Int) figure {
	return figure{name, help, prometheus.NewDesc("gmemtop_rank_"+name, help, labels, nil),
		prometheus.GaugeValue, of, per}
}

func counter(name, help string, of func(v *capture.View, s *capture.Step) maybe.Int) figure {
	return figure{name, help, prometheus.NewDesc("gmemtop_rank_"+name, help, labels, nil),
		prometheus.CounterValue, of, 1}
}

// figures are the series of a rank that has ended a step. What a process does not know has no series.
var figures = []figure{
	counter("steps_total", "Training steps since gmemtop began to watch.",
		func(_ *capture.View, s *capture.Step) maybe.Int { return maybe.Known(s.Index + 1) }),
	gauge("step_duration_seconds", "How long the newest step took.", 1e9,
		func(_ *capture.View, s *capture.Step) maybe.Int { return maybe.Known(s.End - s.Start) }),
	gauge("step_end_timestamp_seconds", "When the newest step ended, in Unix time.", 1e9,
		func(_ *capture.View, s *capture.Step) maybe.Int { return maybe.Known(s.End) }),
	gauge("allocated_bytes", "What the allocator had given out at the end of the newest step.", 1,
		func(_ *capture.View, s *capture.Step) maybe.Int { return s.Allocated }),
	gauge("allocated_peak_bytes", "The allocator's own peak of that, since the process began or reset it.", 1,
		func(_ *capture.View, s *capture.Step) maybe.Int { return s.PeakAllocated }),
	gauge("reserved_bytes", "What the allocator held from the driver at the end of the newest step.", 1,
		func(_ *capture.View, s *capture.Step) maybe.Int { return s.Reserved }),
	gauge("device_bytes", "How much memory the rank's GPU has.", 1,
		func(v *capture.View, _ *capture.Step) maybe.Int { return deviceBytes(&v.Info) }),
	gauge("resident_bytes", "The process's resident memory on the host.", 1,
		func(_ *capture.View, s *capture.Step) maybe.Int { return s.RSS }),
	counter("allocator_retries_total", "How often the allocator released its cache and retried.",
		func(_ *capture.View, s *capture.Step) maybe.Int { return s.Retries }),
	counter("out_of_memory_total", "Out-of-memory errors of the allocator, caught ones too.",
		func(_ *capture.View, s *capture.Step) maybe.Int { return s.OOMs }),
	counter("lost_steps_total", "Steps that never arrived here.",
		func(v *capture.View, _ *capture.Step) maybe.Int {
			var n int64
			for _, l := range v.Losses {
				if l.Name == "steps" {
					n += l.Count
				}
			}
			return maybe.Known(n)
		}),
}

// deviceBytes is the memory of the GPU that a process trains on.
func deviceBytes(t *capture.Info) maybe.Int {
	for _, g := range t.GPUs {
		if g.TotalBytes > 0 && t.Device == fmt.Sprintf("cuda:%d", g.Ordinal) {
			return maybe.Known(g.TotalBytes)
		}
	}
	return maybe.Int{}
}

// upHelp explains the series that a rank has even before its first step.
const upHelp = "1 while the rank runs and its figures arrive, 0 once it has ended or its machine is silent."

var up = prometheus.NewDesc("gmemtop_rank_up", upHelp, labels, nil)

// isUp is the value of that series.
func isUp(v *capture.View) int {
	if v.Ended || v.Severed != "" {
		return 0
	}
	return 1
}

// place is where a series comes from. A process that knows no rank has an empty one.
type place struct{ rank, node string }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.node, q.node), cmp.Compare(p.rank, q.rank))
}

// valid makes text what a label may hold.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// ranksOf returns a job's ranks. Of several processes that had the same rank on a machine, the newest counts.
func ranksOf(j *job.Job) map[place]capture.View {
	newest := map[place]capture.View{}
	for _, p := range j.Processes() {
		v := p.History.Snapshot()
		v.Info = p.Info() // known before the process has reported it itself
		if v.Info.PID == 0 && !v.Info.Rank.IsKnown() {
			continue // there is no process yet
		}
		at := place{node: valid(v.Info.Host)}
		if r, ok := v.Info.Rank.Value(); ok {
			at.rank = strconv.FormatInt(r, 10)
		}
		newest[at] = v
	}
	return newest
}

// collector reads a job when Prometheus asks.
type collector struct {
	run string
	job *job.Job
}

// Collector returns the series of a job's ranks. Of several processes that had the same rank on a machine,
// the newest counts.
func Collector(run string, j *job.Job) prometheus.Collector { return &collector{run, j} }

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- up
	for _, f := range figures {
		ch <- f.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	run := valid(c.run)
	for at, v := range ranksOf(c.job) {
		runs := float64(isUp(&v))
		ch <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, runs, run, at.rank, at.node)
		if len(v.Steps) == 0 {
			continue
		}
		s := &v.Steps[len(v.Steps)-1]
		for _, f := range figures {
			if x, ok := f.of(&v, s).Value(); ok {
				ch <- prometheus.MustNewConstMetric(f.desc, f.kind, float64(x)/f.per, run, at.rank, at.node)
			}
		}
	}
}

// Server answers Prometheus at an address of this machine.
type Server struct {
	http    *http.Server
	address string
	ended   chan struct{}
}

// The bounds of a request: an answer is small, and one scraper at a time is usual.
const (
	readWithin   = 5 * time.Second
	answerWithin = 10 * time.Second
	closeWithin  = time.Second
	atOnce       = 4
)

// ErrOpen means that an address can be reached from other machines.
var ErrOpen = errors.New("metrics have neither encryption nor passwords, so they are for this machine " +
	"only: write 127.0.0.1:9464, and let the collector on this machine or ssh carry them further")

// Serve serves the series of a job at /metrics of an address, which must be one of the loopback device.
func Serve(address, run string, j *job.Job) (*Server, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is not an address: write 127.0.0.1:9464", address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("serve metrics at %s: %w", address, ErrOpen)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	if t, ok := l.Addr().(*net.TCPAddr); !ok || !t.IP.IsLoopback() { // what localhost is, a file says
		_ = l.Close()
		return nil, fmt.Errorf("serve metrics at %s: %w", l.Addr(), ErrOpen)
	}
	all := prometheus.NewRegistry()
	if err := all.Register(Collector(run, j)); err != nil {
		_ = l.Close()
		return nil, err
	}
	answers := http.NewServeMux()
	answers.Handle("GET /metrics", onlyLocal(promhttp.HandlerFor(all, promhttp.HandlerOpts{
		MaxRequestsInFlight: atOnce, Timeout: answerWithin})))
	s := &Server{address: l.Addr().String(), ended: make(chan struct{}), http: &http.Server{Handler: answers,
		ReadHeaderTimeout: readWithin, ReadTimeout: readWithin, IdleTimeout: time.Minute,
		WriteTimeout: 2 * answerWithin, MaxHeaderBytes: 16 << 10}}
	go func() {
		defer close(s.ended)
		_ = s.http.Serve(l)
	}()
	return s, nil
}

// onlyLocal refuses requests that name another host: a web page in a browser on this machine must not read
// the metrics under a name of its own.
func onlyLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "these metrics are for this machine: ask for localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Address is where the server listens.
func (s *Server) Address() string { return s.address }

// Close ends the server and those it talks to.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.ended
}
