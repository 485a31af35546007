package metrics_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Prometheus answers the queries of docs/metrics.md. Beside our series stand those of three GPUs as
// dcgm-exporter writes them: one is used by the run's job, one by another job, one by none.
func TestPrometheusAnswersThePagesQueries(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool: it evaluates the page's queries")
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	comment := regexp.MustCompile(`(?m)\b {6,}.*$`)
	query := func(begins string) string {
		t.Helper()
		found := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(begins) + ".*\n(?: .*\n)*").Find(page)
		if found == nil {
			t.Fatalf("the page has no query that begins with %s", begins)
		}
		return comment.ReplaceAllString(string(found), "")
	}
	const rank, gpu = `{run="4242",rank="0",node="n1"}`, `{gpu="%d",UUID="GPU-%[1]d",` +
		`pci_bus_id="00000000:0%[1]d:00.0",device="nvidia%[1]d",modelName="H100",Hostname="n1"%s}`
	series := map[string]string{
		"gmemtop_rank_reserved_bytes" + rank:                                       "1073741824",
		"gmemtop_rank_device_bytes" + rank:                                         "2147483648",
		"gmemtop_rank_up" + rank:                                                   "1",
		"gmemtop_rank_step_end_timestamp_seconds" + rank:                           "0",
		"DCGM_FI_DEV_FB_USED" + fmt.Sprintf(gpu, 0, `,hpc_job="4242"`):             "1536",
		"DCGM_FI_DEV_FB_USED" + fmt.Sprintf(gpu, 1, ""):                            "7000",
		"DCGM_FI_DEV_FB_USED" + fmt.Sprintf(gpu, 2, `,hpc_job="7"`):                "100",
		"gmemtop_rank_step_end_timestamp_seconds{run=\"q\",rank=\"0\",node=\"m\"}": "1100",
		"gmemtop_rank_up{run=\"q\",rank=\"0\",node=\"m\"}":                         "1",
	}
	var text strings.Builder
	text.WriteString("tests:\n- interval: 20m\n  input_series:\n")
	for name, value := range series {
		fmt.Fprintf(&text, "  - {series: %q, values: '%s %[2]s'}\n", name, value)
	}
	text.WriteString("  promql_expr_test:\n")
	for begins, want := range map[string]string{
		"sum by (run, node)":        `{labels: '{run="4242", node="n1"}', value: 536870912}`,
		"gmemtop_rank_device_bytes": `{labels: '` + rank + `', value: 1073741824}`,
		"time() - ":                 `{labels: '` + rank + `', value: 1200}`,
	} {
		fmt.Fprintf(&text, "  - {expr: %q, eval_time: 20m, exp_samples: [%s]}\n", query(begins), want)
	}
	path := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, &text)
	}
}
