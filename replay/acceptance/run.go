package acceptance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/examples"
	"github.com/gmemtop/gmemtop/traces/near"
)

// ErrNoCheck is wrapped by the error of [Run] if [Options.Only] names an unknown check.
var ErrNoCheck = errors.New("there is no check")

// Run runs the checks. If ctx ends, it ends every process that it started and returns ctx's error. A check
// that fails is not an error of Run. The error wraps [ErrNoGPU] if there is no GPU, and says what to do.
func Run(ctx context.Context, o Options) (*Report, error) {
	for _, name := range o.Only {
		if _, ok := Find(name); !ok {
			return nil, fmt.Errorf("%w %q%s", ErrNoCheck, name,
				cmp.Or(near.Hint(name, names()), ": they are "+strings.Join(names(), ", ")))
		}
	}
	if o.Folder == "" {
		folder, err := os.MkdirTemp("", "gmemtop-checks-")
		if err != nil {
			return nil, fmt.Errorf("no folder for the checks: %w: set TMPDIR to one that you may write", err)
		}
		defer os.RemoveAll(folder)
		o.Folder = folder
	}
	if err := unpack(o.Folder); err != nil {
		return nil, err
	}
	s := newCheckup(o)
	defer s.sweep()
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	s.size = s.sizeFor()
	return s.all(ctx, checks)
}

func newCheckup(o Options) *checkup {
	s := &checkup{Options: o, token: newToken(), began: time.Now()}
	s.redactor = newRedactor(append(namesHere(), o.Folder, o.Python, o.Program)...)
	if o.Limit > 0 {
		s.end = s.began.Add(o.Limit)
	}
	return s
}

// all runs those of the checks that were asked for, and returns the report.
func (s *checkup) all(ctx context.Context, list []Check) (*Report, error) {
	s.report = &Report{SchemaVersion: SchemaVersion, Day: s.began.UTC().Format(time.DateOnly),
		Gmemtop: s.build(), System: s.system(), GPU: s.facts.gpu, Torch: s.facts.torch, Networks: s.size.name}
	kept := s.kept()
	for _, c := range list {
		if len(s.Only) > 0 && !slices.Contains(s.Only, c.Name) {
			continue
		}
		r, done := kept[c.Name]
		if !done {
			r = s.try(ctx, c)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.report.Results = append(s.report.Results, r)
		if r.Outcome == OK && !done {
			s.keep()
		}
		if s.End != nil {
			s.End(r)
		}
	}
	s.report.Seconds = seconds(time.Since(s.began))
	return s.report, s.report.validate()
}

func names() []string {
	var list []string
	for _, c := range checks {
		list = append(list, c.Name)
	}
	return list
}

func seconds(d time.Duration) float64 { return float64(d.Round(100*time.Millisecond)) / 1e9 }

// try runs one check, if it has what it needs and time is left.
func (s *checkup) try(ctx context.Context, c Check) (r Result) {
	r = Result{Check: c.Name}
	if missing := s.lacks(c.needs); missing != "" {
		r.Outcome, r.Reason = Skipped, s.redactor.redact(missing)
		return r
	}
	if !s.end.IsZero() && time.Until(s.end) < c.Least {
		r.Outcome, r.Reason = NotRun, errNoTime.Error()
		r.Reason = s.redactor.redact(r.Reason)
		return r
	}
	if s.Begin != nil {
		s.Begin(c)
	}
	began := time.Now()
	inner, cancel := ctx, context.CancelFunc(func() {})
	if !s.end.IsZero() {
		inner, cancel = context.WithDeadline(ctx, s.end)
	}
	t := &trial{checkup: s, check: c}
	os.Remove(t.path(".log"))
	err := t.guarded(inner)
	timeUp := inner.Err() != nil
	cancel()
	s.sweep()
	r.Seconds, r.Figures = seconds(time.Since(began)), t.figures
	switch {
	case err == nil:
		r.Outcome = OK
	case errors.As(err, new(skipped)):
		r.Outcome, r.Reason = Skipped, s.redactor.redact(err.Error())
	case errors.Is(err, errNoTime), timeUp:
		r.Outcome, r.Reason = NotRun, s.redactor.redact(errNoTime.Error())
	default:
		t.log("failed: %v", err)
		r.Outcome, r.Reason = Failed, s.redactor.redact(err.Error())
	}
	return r
}

// guarded runs the check; a panic fails only that check.
func (t *trial) guarded(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the check itself is broken: %v", p)
		}
	}()
	return t.check.run(ctx, t)
}

// lacks names what a check needs and this machine lacks, "" if nothing.
func (s *checkup) lacks(n need) string {
	switch {
	case n&needTorch != 0 && s.facts.torch == nil:
		return s.facts.noTorch
	case n&needLimit != 0 && !s.facts.limit:
		return "needs torch.cuda.get_per_process_memory_fraction: take a newer torch"
	case n&needTwoGPUs != 0 && s.facts.gpu.Count < 2:
		return "needs two GPUs"
	}
	return ""
}

func (s *checkup) build() Build {
	b := s.Build
	b.Version, b.Revision = fit("gmemtop version", b.Version, "unknown"), fit("revision", b.Revision, "")
	return b
}

func (s *checkup) system() System {
	x := System{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU()}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		var major, minor int
		if _, err := fmt.Sscanf(string(b), "%d.%d", &major, &minor); err == nil {
			x.Kernel = fit("kernel", fmt.Sprintf("%d.%d", major, minor), "")
		}
	}
	return x
}

// saved is what the folder keeps from an earlier run.
type saved struct {
	For     string   `json:"for"` // results count only for the same build on the same card
	Results []Result `json:"results"`
}

func (s *checkup) identity() string {
	b, _ := json.Marshal([]any{s.report.Gmemtop, s.report.GPU, s.report.Torch, s.report.Networks})
	return string(b)
}

const savedName = "results.json"

// kept returns the results of an earlier run in the same folder that were ok.
func (s *checkup) kept() map[string]Result {
	out := map[string]Result{}
	b, err := os.ReadFile(filepath.Join(s.Folder, savedName))
	var v saved
	if err != nil || json.Unmarshal(b, &v) != nil || v.For != s.identity() {
		return out
	}
	for _, r := range v.Results {
		if r.Outcome == OK && r.validate() == nil {
			out[r.Check] = r
		}
	}
	return out
}

// keep saves the results so far. If it cannot, the next run repeats them.
func (s *checkup) keep() {
	all := s.kept()
	for _, r := range s.report.Results {
		all[r.Check] = r
	}
	v := saved{For: s.identity()}
	for _, c := range checks {
		if r, ok := all[c.Name]; ok && r.Outcome == OK {
			v.Results = append(v.Results, r)
		}
	}
	b, err := json.MarshalIndent(v, "", " ")
	part := filepath.Join(s.Folder, savedName+".part")
	if err == nil && os.WriteFile(part, b, 0o600) == nil {
		_ = os.Rename(part, filepath.Join(s.Folder, savedName))
	}
}

// unpack puts the scripts that train into the folder.
func unpack(folder string) error {
	if err := os.MkdirAll(filepath.Join(folder, "cache"), 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of the checks: %w; name another one with --keep", err)
	}
	for _, from := range []struct {
		files interface {
			ReadFile(string) ([]byte, error)
		}
		prefix string
		names  []string
	}{
		{examples.Files, "", []string{"gpt2.py", "mlp.py", "resnet50.py", "vgg16.py", "vit.py"}},
		{scripts, "python/", []string{"learn.py", "look.py", "oom.py", "snapshot.py", "counted.py",
			"overhead.py", "ddp.py"}},
	} {
		for _, name := range from.names {
			b, err := from.files.ReadFile(from.prefix + name)
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, name), b, 0o600)
			}
			if err != nil {
				return fmt.Errorf("cannot write the scripts of the checks: %w; name another folder with "+
					"--keep", err)
			}
		}
	}
	return nil
}
