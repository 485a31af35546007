package planner

import (
	"errors"
	"fmt"
	"os"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/emit"
	"github.com/gmemtop/gmemtop/timeline"
)

// Python says where a plan goes that is written as Python: to a file, beside which lies the file that carries
// out the rules of any plan, or to a stream.
type Python struct {
	// Path is "" or - for standard output.
	Path string
	// Force replaces another version of the file beside it.
	Force bool
}

// IsFile reports whether the plan goes to a file, not to standard output, a pipe or a device.
func (x *Python) IsFile() bool {
	if x.Path == "" || x.Path == "-" {
		return false
	}
	info, err := os.Stat(x.Path)
	return err != nil || info.Mode().IsRegular()
}

// module returns the name that Python imports the file by, "" for a stream. The error is a mistake.
func (x *Python) module() (string, error) {
	if !x.IsFile() {
		return "", nil
	}
	name, err := emit.Module(x.Path)
	return name, exit.AsMistake(err)
}

// Runtime returns the path of the file that carries out the rules if it must be written, "" if it is there
// already or the plan goes to a stream. Another version of it is only replaced with Force.
func (x *Python) Runtime() (string, error) {
	if !x.IsFile() {
		return "", nil
	}
	beside := emit.RuntimeBeside(x.Path)
	switch {
	case beside.Current:
		return "", nil
	case beside.Changed && !x.Force:
		return "", fmt.Errorf("%s was written by another version of gmemtop, or changed since: replace it "+
			"with -f, or name a file in another folder", beside.Path)
	}
	return beside.Path, nil
}

// Beside returns the path of the file that has to be written beside a manager's plan, "" for none. The error
// says why the plan could not be written.
func (x *Python) Beside(m plan.Manager) (path string, err error) {
	if _, err := x.module(); err != nil {
		return "", err
	}
	if m.Info().Family == plan.Baseline { // its settings need no other file
		return "", nil
	}
	return x.Runtime()
}

// Text returns a plan as Python, and whether that imports the file of [Python.Runtime].
func (x *Python) Text(p *plan.Problem, r *replay.Result, u timeline.Units) (text string, rules bool,
	err error) {
	module, err := x.module()
	if err != nil {
		return "", false, err
	}
	text, rules, err = emit.Python(p, r, module, u)
	if errors.As(err, new(*emit.Refused)) {
		err = exit.AsUnsupported(err)
	}
	return text, rules, err
}
