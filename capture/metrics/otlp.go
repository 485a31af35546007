package metrics

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gmemtop/gmemtop/capture/job"
)

// The figures also go to an OpenTelemetry collector, by OTLP over HTTP in its JSON encoding
// (https://opentelemetry.io/docs/specs/otlp). That takes little code; OpenTelemetry's own library would bring
// gRPC along. Names follow OpenTelemetry's conventions, from which a collector makes those for Prometheus.

// OTLPOptions say where an exporter sends to.
type OTLPOptions struct {
	// URL is the collector's, such as http://127.0.0.1:4318. /v1/metrics is added.
	URL string
	// Headers are sent along, such as an API key. They are secret.
	Headers map[string]string
	// Every is the time from one export to the next; 0 for 15 seconds.
	Every time.Duration
	// Tell is called with each problem once, and with nil when all is well again.
	Tell func(err error)
}

// OTLP sends the figures of a job to a collector.
type OTLP struct {
	options OTLPOptions
	run     string
	job     *job.Job
	begun   time.Time
	client  *http.Client
	told    string
}

// The bounds of an export.
const (
	otlpEvery  = 15 * time.Second
	sendWithin = 10 * time.Second
	mostAnswer = 64 << 10
)

// errOTLP says how to name a collector.
var errOTLP = errors.New("write http://127.0.0.1:4318 for a collector on this machine, and " +
	"https://HOST:PORT for another one")

// NewOTLP returns the exporter of a job's figures. It refuses a URL that is not encrypted, unless it is of
// this machine, and one that holds a secret.
func NewOTLP(o OTLPOptions, run string, j *job.Job) (*OTLP, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("this is not the URL of a collector: %w", errOTLP)
	case u.User != nil:
		return nil, errors.New("the URL of the collector holds a secret that others on this machine can " +
			"read: put it in the environment, as OTEL_EXPORTER_OTLP_HEADERS=authorization=SECRET")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, fmt.Errorf("%s is not encrypted: %w", u.Redacted(), errOTLP)
	}
	if !strings.HasSuffix(u.Path, "/v1/metrics") {
		u = u.JoinPath("v1", "metrics")
	}
	o.URL = u.String()
	if o.Every <= 0 {
		o.Every = otlpEvery
	}
	if o.Tell == nil {
		o.Tell = func(error) {}
	}
	// A collector that sends us elsewhere must not get the headers there, perhaps in plain text.
	client := &http.Client{Timeout: sendWithin, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return &OTLP{options: o, run: run, job: j, begun: time.Now(), client: client}, nil
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ParseHeaders reads OTEL_EXPORTER_OTLP_HEADERS: key=value pairs separated by commas, values in the encoding
// of URLs. The error repeats no value.
func ParseHeaders(text string) (map[string]string, error) {
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !found || key == "" || err != nil {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS is not KEY=VALUE, separated by commas")
		}
		all[key] = value
	}
	return all, nil
}

// Run exports until ctx is done, and once more then.
func (x *OTLP) Run(ctx context.Context) {
	tick := time.NewTicker(x.options.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			x.send(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			x.send(ctx)
		}
	}
}

// send exports once. What could not be sent is not kept: the next export has newer figures.
func (x *OTLP) send(ctx context.Context) {
	err := x.post(ctx)
	if ctx.Err() != nil {
		return
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != x.told {
		x.told = said
		x.options.Tell(err)
	}
}

func (x *OTLP) post(ctx context.Context) error {
	text, err := json.Marshal(x.request(time.Now()))
	if err != nil {
		return err
	}
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	if _, err := z.Write(text); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, x.options.URL, &body)
	if err != nil {
		return err
	}
	for key, value := range x.options.Headers {
		r.Header.Set(key, value)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Encoding", "gzip")
	a, err := x.client.Do(r)
	if err != nil {
		return fmt.Errorf("send metrics: %w", err)
	}
	defer a.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(a.Body, mostAnswer))
	if a.StatusCode/100 != 2 {
		return fmt.Errorf("send metrics: the collector answers %s", a.Status)
	}
	var answer struct {
		PartialSuccess struct {
			RejectedDataPoints json.Number `json:"rejectedDataPoints"`
			ErrorMessage       string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	// Some collectors answer with nothing.
	if json.Unmarshal(said, &answer) == nil {
		if n, _ := answer.PartialSuccess.RejectedDataPoints.Int64(); n > 0 {
			return fmt.Errorf("send metrics: the collector refused %d figures: %s", n,
				answer.PartialSuccess.ErrorMessage)
		}
	}
	return nil
}

// The JSON of an ExportMetricsServiceRequest. 64-bit integers are decimal strings in it.
type (
	otlpValue struct {
		String string `json:"stringValue"`
	}
	otlpAttribute struct {
		Key   string    `json:"key"`
		Value otlpValue `json:"value"`
	}
	otlpPoint struct {
		Attributes []otlpAttribute `json:"attributes"`
		Start      string          `json:"startTimeUnixNano,omitempty"`
		Time       string          `json:"timeUnixNano"`
		Int        string          `json:"asInt,omitempty"`
		Double     *float64        `json:"asDouble,omitempty"`
	}
	otlpData struct {
		Points      []otlpPoint `json:"dataPoints"`
		Temporality int         `json:"aggregationTemporality,omitempty"`
		Monotonic   bool        `json:"isMonotonic,omitempty"`
	}
	otlpMetric struct {
		Name  string    `json:"name"`
		Help  string    `json:"description"`
		Unit  string    `json:"unit,omitempty"`
		Gauge *otlpData `json:"gauge,omitempty"`
		Sum   *otlpData `json:"sum,omitempty"`
	}
	otlpScope struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Metrics []otlpMetric `json:"metrics"`
	}
	otlpResource struct {
		Resource struct {
			Attributes []otlpAttribute `json:"attributes"`
		} `json:"resource"`
		Scopes []otlpScope `json:"scopeMetrics"`
	}
	otlpRequest struct {
		Resources []otlpResource `json:"resourceMetrics"`
	}
)

// cumulative is OTLP's AGGREGATION_TEMPORALITY_CUMULATIVE.
const cumulative = 2

// otlpName returns the name and unit of a series by OpenTelemetry's conventions: units are no part of names.
func otlpName(name string) (plain, unit string) {
	for suffix, unit := range map[string]string{"_bytes": "By", "_seconds": "s", "_total": ""} {
		if plain, ok := strings.CutSuffix(name, suffix); ok {
			return "gmemtop.rank." + plain, unit
		}
	}
	return "gmemtop.rank." + name, ""
}

// request returns what is exported at a moment.
func (x *OTLP) request(now time.Time) otlpRequest {
	stamp, begun := strconv.FormatInt(now.UnixNano(), 10), strconv.FormatInt(x.begun.UnixNano(), 10)
	list := make([]otlpMetric, len(figures)+1)
	list[0] = otlpMetric{Name: "gmemtop.rank.up", Help: upHelp, Gauge: &otlpData{}}
	for i := range figures {
		f := &figures[i]
		m := &list[i+1]
		m.Help = f.help
		m.Name, m.Unit = otlpName(f.name)
		if f.kind == prometheus.CounterValue {
			m.Sum = &otlpData{Temporality: cumulative, Monotonic: true}
		} else {
			m.Gauge = &otlpData{}
		}
	}
	newest := ranksOf(x.job)
	places := slices.SortedFunc(maps.Keys(newest), place.compare)
	for _, at := range places {
		v := newest[at]
		attributes := []otlpAttribute{{"run", otlpValue{valid(x.run)}}, {"rank", otlpValue{at.rank}},
			{"node", otlpValue{at.node}}}
		list[0].Gauge.Points = append(list[0].Gauge.Points, otlpPoint{Attributes: attributes, Time: stamp,
			Int: strconv.Itoa(isUp(&v))})
		if len(v.Steps) == 0 {
			continue
		}
		s := &v.Steps[len(v.Steps)-1]
		for i := range figures {
			f := &figures[i]
			value, known := f.of(&v, s).Value()
			if !known {
				continue
			}
			p := otlpPoint{Attributes: attributes, Time: stamp}
			if f.per == 1 {
				p.Int = strconv.FormatInt(value, 10)
			} else {
				q := float64(value) / f.per
				p.Double = &q
			}
			data := list[i+1].Gauge
			if list[i+1].Sum != nil {
				data, p.Start = list[i+1].Sum, begun
			}
			data.Points = append(data.Points, p)
		}
	}
	list = slices.DeleteFunc(list, func(m otlpMetric) bool {
		return m.Gauge != nil && len(m.Gauge.Points) == 0 || m.Sum != nil && len(m.Sum.Points) == 0
	})
	r := otlpResource{Scopes: []otlpScope{{Metrics: list}}}
	r.Scopes[0].Scope.Name = "gmemtop"
	r.Resource.Attributes = []otlpAttribute{{"service.name", otlpValue{"gmemtop"}}}
	return otlpRequest{Resources: []otlpResource{r}}
}
