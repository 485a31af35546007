package headless

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/usdt"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
)

// Probes are the probes to watch a process with, as flags ask for them.
type Probes struct {
	PID int
	// Kind is the value of --probes, Triggers those of --trigger.
	Kind     string
	Triggers []string
}

// probeKinds are the values of --probes.
var probeKinds = map[string]usdt.Probes{"auto": 0, "pytorch": usdt.PyTorch, "driver": usdt.Driver,
	"both": usdt.PyTorch | usdt.Driver}

// Source prepares to watch the process. Notices say where the probes are and what they cannot see. It waits
// for a process that has not loaded CUDA yet. An obstacle is reported now, before a file is begun or a screen
// opened.
func (p *Probes) Source() (job.Source, error) {
	kind, ok := probeKinds[p.Kind]
	if !ok {
		return nil, exit.Mistakef("--probes %q is not one of auto, pytorch, driver, both", p.Kind)
	}
	for _, text := range p.Triggers {
		name, _, _ := strings.Cut(strings.ReplaceAll(text, " ", ""), ">")
		if !slices.Contains([]string{"allocated", "reserved", "held", "oom"}, name) {
			return nil, exit.Mistakef("trigger %q: probes see neither steps nor resident memory; "+
				"those on allocated, reserved, held and oom work with --probes", text)
		}
	}
	if err := usdt.Check(); err != nil {
		return nil, exit.AsUnsupported(err)
	}
	o := usdt.Options{PID: p.PID, Probes: kind}
	if _, err := usdt.Plan(o); err != nil && !errors.Is(err, usdt.ErrNotLoaded) {
		return nil, refused(err)
	}
	o.Wait = true
	return job.Whole(usdt.New(o)), nil
}

// Places says where the probes would be placed in the process.
func (p *Probes) Places() (lines []string, err error) {
	sites, err := usdt.Plan(usdt.Options{PID: p.PID, Probes: probeKinds[p.Kind]})
	if err != nil {
		return nil, refused(err)
	}
	for _, s := range sites {
		slow := ""
		if !s.Emulated {
			slow = ", stepped over"
		}
		lines = append(lines, fmt.Sprintf("would put a probe on %s in %s at offset %#x%s", s.Name, s.Library,
			s.Offset, slow))
	}
	_, unseen := usdt.Explain(sites)
	return append(lines, "note: "+unseen), nil
}

// refused gives an error its exit code: something that this machine or process does not allow is not a
// failure.
func refused(err error) error {
	if errors.Is(err, usdt.ErrNoProcess) || errors.Is(err, usdt.ErrNotLoaded) {
		return err
	}
	return exit.AsUnsupported(err)
}
