package metrics_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/metrics"
)

// collector keeps what is sent to it, and answers as it is told.
type collector struct {
	mu     sync.Mutex
	bodies []string
	header http.Header
	path   string
	status int
	answer string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text, _ := io.ReadAll(z)
	c.bodies, c.header, c.path = append(c.bodies, string(text)), r.Header.Clone(), r.URL.Path
	w.WriteHeader(max(c.status, http.StatusOK))
	_, _ = io.WriteString(w, c.answer)
}

func (c *collector) set(status int, answer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.answer = status, answer
}

// The figures arrive as the JSON of OTLP, the same ones as for Prometheus.
func TestTheFiguresGoToACollector(t *testing.T) {
	c := &collector{}
	s := httptest.NewServer(c)
	defer s.Close()
	told := make(chan error, 16)
	x, err := metrics.NewOTLP(metrics.OTLPOptions{URL: s.URL + "/", Every: time.Millisecond,
		Headers: map[string]string{"authorization": "secret"}, Tell: func(err error) { told <- err }}, "r",
		ranks(t))
	if err != nil {
		t.Fatal(err)
	}
	c.set(http.StatusTooManyRequests, "")
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { x.Run(ctx) })
	if err := <-told; err == nil || !strings.Contains(err.Error(), "429") ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("busy: %v", err)
	}
	c.set(http.StatusOK, `{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"too old"}}`)
	if err := <-told; err == nil || !strings.Contains(err.Error(), "refused 3 figures: too old") {
		t.Errorf("partly refused: %v", err)
	}
	c.set(http.StatusOK, "")
	if err := <-told; err != nil {
		t.Errorf("all is well: %v", err)
	}
	await.Until(t, "figures are sent", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.bodies) > 5
	})
	stop()
	work.Wait()
	if c.path != "/v1/metrics" || c.header.Get("Content-Type") != "application/json" ||
		c.header.Get("Authorization") != "secret" {
		t.Errorf("%s %v", c.path, c.header)
	}
	text := c.bodies[len(c.bodies)-1]
	var got any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	stamps := regexp.MustCompile(`"(t|startT)imeUnixNano":"\d{19}"`)
	plain := func(text string) (v any) {
		_ = json.Unmarshal(stamps.ReplaceAll([]byte(text), []byte(`"${1}imeUnixNano":"0"`)), &v)
		return v
	}
	want, err := os.ReadFile("testdata/want.otlp.json")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(plain(text), plain(string(want))) {
		t.Errorf("not testdata/want.otlp.json:\n%s", text)
	}
}

func TestACollectorIsReachedEncryptedOrOnThisMachine(t *testing.T) {
	j := ranks(t)
	for url, want := range map[string]string{
		"http://collector:4318":            "is not encrypted",
		"http://192.0.2.1:4318":            "is not encrypted",
		"https://me:secret@collector":      "OTEL_EXPORTER_OTLP_HEADERS",
		"127.0.0.1:4318":                   "not the URL",
		"grpc://127.0.0.1:4317":            "not the URL",
		"https://collector/?key=secret":    "not the URL",
		"http://127.0.0.1:4318/v1/metrics": "", "https://collector:4318": "", "http://localhost:4318": "",
	} {
		_, err := metrics.NewOTLP(metrics.OTLPOptions{URL: url}, "r", j)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret@") || strings.Contains(err.Error(), "key=secret")) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A collector that sends elsewhere gets nothing sent there.
func TestACollectorCannotSendElsewhere(t *testing.T) {
	elsewhere := &collector{}
	other := httptest.NewServer(elsewhere)
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	told := make(chan error, 1)
	x, err := metrics.NewOTLP(metrics.OTLPOptions{URL: s.URL, Tell: func(err error) { told <- err }}, "r",
		ranks(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	x.Run(ctx)
	close(told)
	if err := <-told; err == nil || !strings.Contains(err.Error(), "307") || len(elsewhere.bodies) > 0 {
		t.Errorf("%v, %d bodies", err, len(elsewhere.bodies))
	}
}

func TestHeadersAreRead(t *testing.T) {
	got, err := metrics.ParseHeaders("authorization=Bearer%20abc, x = 1=2,")
	want := map[string]string{"authorization": "Bearer abc", "x": "1=2"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v", got, err)
	}
	for _, text := range []string{"secret", "=secret", "a=%zzsecret"} {
		if _, err := metrics.ParseHeaders(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
