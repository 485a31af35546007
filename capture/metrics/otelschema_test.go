package metrics_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	service "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/gmemtop/gmemtop/capture/metrics"
)

// receiver is the receiving end of OTLP over HTTP, made of OpenTelemetry's own messages. It accepts no field
// that they do not have.
type receiver struct {
	t      *testing.T
	got    []*service.ExportMetricsServiceRequest
	answer *service.ExportMetricsServiceResponse
}

func (c *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		c.t.Error(err)
		return
	}
	text, err := io.ReadAll(z)
	if err != nil {
		c.t.Error(err)
	}
	x := &service.ExportMetricsServiceRequest{}
	if err := protojson.Unmarshal(text, x); err != nil {
		c.t.Errorf("OpenTelemetry cannot read it: %v\n%s", err, text)
	}
	c.got = append(c.got, x)
	w.Header().Set("Content-Type", "application/json")
	said, err := protojson.Marshal(c.answer)
	if err != nil {
		c.t.Error(err)
	}
	_, _ = w.Write(said)
}

// asPrometheus returns what a collector makes of a metric for Prometheus: the value of each series, by its
// name and labels.
func asPrometheus(t *testing.T, m *otlp.Metric) map[string]float64 {
	t.Helper()
	name := strings.ReplaceAll(m.Name, ".", "_") + map[string]string{"By": "_bytes", "s": "_seconds"}[m.Unit]
	points := m.GetGauge().GetDataPoints()
	if sum := m.GetSum(); sum != nil {
		points = sum.DataPoints
		if sum.IsMonotonic {
			name += "_total"
		}
		if sum.AggregationTemporality != otlp.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE {
			t.Errorf("%s: %v", m.Name, sum.AggregationTemporality)
		}
	}
	all := map[string]float64{}
	for _, p := range points {
		labels := map[string]string{}
		for _, a := range p.Attributes {
			labels[a.Key] = a.Value.GetStringValue()
		}
		value := p.GetAsDouble()
		if _, whole := p.Value.(*otlp.NumberDataPoint_AsInt); whole {
			value = float64(p.GetAsInt())
		}
		all[fmt.Sprint(name, labels)] = value
		if began := m.GetSum() != nil; p.TimeUnixNano == 0 || began != (p.StartTimeUnixNano > 0) {
			t.Errorf("%s from %d to %d", m.Name, p.StartTimeUnixNano, p.TimeUnixNano)
		}
	}
	return all
}

// OpenTelemetry's own messages hold what is sent, and it is the same as what Prometheus gets, in names and
// values. A field that a collector would refuse fails the test.
func TestOpenTelemetryReadsWhatPrometheusReads(t *testing.T) {
	c := &receiver{t: t, answer: &service.ExportMetricsServiceResponse{
		PartialSuccess: &service.ExportMetricsPartialSuccess{RejectedDataPoints: 3, ErrorMessage: "too old"}}}
	s := httptest.NewServer(c)
	defer s.Close()
	j := ranks(t)
	var told []string
	x, err := metrics.NewOTLP(metrics.OTLPOptions{URL: s.URL, Tell: func(err error) {
		told = append(told, fmt.Sprint(err))
	}}, "r", j)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	x.Run(ctx) // once, at the end
	if len(c.got) != 1 || len(told) != 1 || !strings.Contains(told[0], "refused 3 figures: too old") {
		t.Fatalf("%d requests; told %q", len(c.got), told)
	}
	got := map[string]float64{}
	for _, r := range c.got[0].ResourceMetrics {
		for _, scope := range r.ScopeMetrics {
			for _, m := range scope.Metrics {
				maps.Copy(got, asPrometheus(t, m))
			}
		}
	}
	all := prometheus.NewPedanticRegistry()
	all.MustRegister(metrics.Collector("r", j))
	families, err := all.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			want[fmt.Sprint(f.GetName(), labels)] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	if len(want) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("OpenTelemetry got %v\nPrometheus %v", got, want)
	}
}
