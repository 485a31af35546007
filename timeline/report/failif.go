package report

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces/near"
)

// Threshold is a condition on a metric of a [Diff], as --fail-if takes it:
//
//	peak>+2%               B's peak is more than 2 % above A's
//	peak_reserved>+64MiB   B's reserved peak is more than 64 MiB above A's
//	peak>40GiB             B's peak is above 40 GiB, whatever A's is
//	blocks<-10%            B has at least 10 % fewer blocks
//
// A signed value or a percentage is a change from A to B, peak>2% the same as peak>+2%; any other value is
// B's own figure.
type Threshold struct {
	Expression string
	metric, op string
	relative   bool // the value is a change
	percent    bool
	value      string
	number     float64 // percent, when percent is set
}

var thresholdForm = regexp.MustCompile(
	`^\s*([a-z_]+)\s*(>=|<=|>|<)\s*([+-]?)\s*([0-9.]+)\s*(%|[A-Za-zµ]*)\s*$`)

// ParseThresholds reads conditions separated by commas or semicolons. Metric names are only checked against a
// Diff.
func ParseThresholds(list []string) ([]Threshold, error) {
	var out []Threshold
	for _, item := range list {
		for _, s := range strings.FieldsFunc(item, func(r rune) bool { return r == ',' || r == ';' }) {
			t, err := parseThreshold(s)
			if err != nil {
				return nil, err
			}
			out = append(out, t)
		}
	}
	return out, nil
}

func parseThreshold(s string) (Threshold, error) {
	m := thresholdForm.FindStringSubmatch(s)
	if m == nil {
		return Threshold{}, fmt.Errorf("threshold %q is not of the form 'peak>+2%%' or "+
			"'peak_reserved>+64MiB'", s)
	}
	t := Threshold{Expression: strings.TrimSpace(s), metric: runs.MetricNamed(m[1]), op: m[2],
		relative: m[3] != "" || m[5] == "%", percent: m[5] == "%", value: m[4] + m[5]}
	if t.percent {
		n, err := strconv.ParseFloat(m[4], 64)
		if err != nil {
			return Threshold{}, fmt.Errorf("threshold %q: %q is not a number", s, m[4])
		}
		t.number = n
	}
	if m[3] == "-" {
		t.number, t.value = -t.number, "-"+t.value
	}
	return t, nil
}

// Check is a threshold and its outcome.
type Check struct {
	Expression string `json:"expression"`
	Metric     string `json:"metric"`
	Failed     bool   `json:"failed"`
	Text       string `json:"text"`
}

func (c *Check) word() string {
	if c.Failed {
		return "FAIL"
	}
	return "pass"
}

func (t *Threshold) check(metrics []Metric) (Check, error) {
	var names []string
	for i := range metrics {
		m := &metrics[i]
		names = append(names, runs.MetricTyped(m.Name))
		if m.Name == t.metric {
			return t.measure(m)
		}
	}
	return Check{}, fmt.Errorf("threshold %q: these two recordings have no metric %q; they have %s%s",
		t.Expression, t.metric, strings.Join(names, ", "), near.Hint(t.metric, names))
}

func (t *Threshold) measure(m *Metric) (Check, error) {
	c := Check{Expression: t.Expression, Metric: m.Name}
	o := Options{}
	got, limit := float64(m.B), 0.0
	switch {
	case t.percent:
		got, limit = percentChange(m), t.number
	default:
		n, err := t.amount(m.Unit)
		if err != nil {
			return Check{}, err
		}
		limit = float64(n)
		if t.relative {
			got = float64(m.Delta)
		}
	}
	switch t.op {
	case ">":
		c.Failed = got > limit
	case ">=":
		c.Failed = got >= limit
	case "<":
		c.Failed = got < limit
	case "<=":
		c.Failed = got <= limit
	}
	change := m.delta(o)
	if m.Change != nil && m.Delta != 0 {
		change += ", " + m.changeText()
	}
	c.Text = fmt.Sprintf("%s to %s (%s)", m.text(m.A, o), m.text(m.B, o), change)
	return c, nil
}

// percentChange returns the change in per cent; a rise from zero is infinite and so above any threshold.
func percentChange(m *Metric) float64 {
	if m.Change != nil {
		return 100 * *m.Change
	}
	switch {
	case m.Delta > 0:
		return math.Inf(1)
	case m.Delta < 0:
		return math.Inf(-1)
	}
	return 0
}

// amount reads the threshold's value in the metric's unit: bytes, a duration, or a count. Bytes need a unit,
// since a bare number is as often a percentage or a forgotten GiB.
func (t *Threshold) amount(unit string) (int64, error) {
	text, sign := strings.TrimPrefix(t.value, "-"), int64(1)
	if text != t.value {
		sign = -1
	}
	var n int64
	var err error
	switch unit {
	case "bytes":
		if v, bad := strconv.ParseFloat(text, 64); bad == nil && v != 0 {
			const advice = "threshold %q has no unit: write %sMiB, %sB for bytes, or +%s%% for a change"
			return 0, fmt.Errorf(advice, t.Expression, text, text, text)
		}
		n, err = timeline.ParseBytes(text)
	case "ns":
		var d time.Duration
		d, err = time.ParseDuration(text)
		n = int64(d)
	default:
		n, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("threshold %q: %q is not a value of %s, which is counted in %s", t.Expression,
			text, t.metric, unit)
	}
	return sign * n, nil
}
