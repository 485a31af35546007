// Package emit writes plans as Python files that carry them out in programs of their own, without gmemtop.
package emit

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
)

// Refused is the error of a plan that no program can carry out by itself.
type Refused struct{ err error }

func (r *Refused) Error() string { return r.err.Error() }

// Unwrap returns the reason.
func (r *Refused) Unwrap() error { return r.err }

func refuse(format string, args ...any) error { return &Refused{fmt.Errorf(format, args...)} }

// Runtime is the name of the Python file that carries out the rules of any plan.
const Runtime = "gmemtop_carry.py"

// keywords are Python's, none of which can name a module.
var keywords = strings.Fields(`False None True and as assert async await break class continue def del elif
	else except finally for from global if import in is lambda nonlocal not or pass raise return try while
	with yield`)

// Module returns the name under which Python imports a file. It returns an error if Python cannot import it,
// or would import it instead of torch or of the file [Runtime].
func Module(path string) (string, error) {
	file := filepath.Base(path)
	name, ok := strings.CutSuffix(file, ".py")
	for i, c := range name {
		ok = ok && (c == '_' || unicode.IsLetter(c) || i > 0 && unicode.IsDigit(c))
	}
	switch {
	case !ok || name == "" || slices.Contains(keywords, name):
		return "", fmt.Errorf("a file named %q cannot be imported: use letters, digits and _, and end "+
			"the name in .py, as in less_memory.py", file)
	case file == Runtime:
		return "", errors.New(Runtime + " is the file that carries out the rules of any plan: give this " +
			"one another name, such as less_memory.py")
	case name == "torch":
		return "", errors.New("Python would import torch.py instead of torch: give it another name, such " +
			"as less_memory.py")
	}
	return name, nil
}

// Python returns a plan as a Python file that carries it out in a program of its own, as the agent does in a
// running training. If rules is set, the file has the plan's rules and imports the file of [RuntimeSource],
// which must be in the same folder. Its text says how to import it under the name of [Module], which for ""
// is less_memory. Sizes in its text are in units u.
func Python(p *plan.Problem, r *replay.Result, module string, u timeline.Units) (text string, rules bool,
	err error) {
	switch {
	case r.Plan.Policy != nil:
		text, err = allocatorFile(r)
		return text, false, err
	case r.Plan.Parks:
		err = refuse("the plan also has optimizer state wait on the host, which only gmemtop does: ask "+
			"for a larger budget, or train with gmemtop run --manager %s", r.Info.Name)
	case r.Plan.Executor == plan.TorchEager:
		text, err = rulesFile(p, r, cmp.Or(module, "less_memory"), u)
		return text, err == nil, err
	case r.Info.Family == plan.Pooling:
		err = refuse("%s only chooses addresses, which PyTorch's allocator does not take from a plan: "+
			"try its settings (expandable)", r.Info.Name)
	case len(r.Plan.Absences) == 0:
		err = refuse("%s has nothing to do: a step already fits into %s", r.Info.Name, u.Bytes(r.Plan.Budget))
	default:
		err = refuse("%s made this plan for the executor %s: have it made for eager PyTorch", r.Info.Name,
			r.Plan.Executor)
	}
	return "", false, err
}

// RuntimeSource returns the text of the file [Runtime]. It is the same for every plan.
func RuntimeSource() string {
	return `"""Carries out plans that gmemtop made. It needs torch 2.2 or newer and nothing else."""
` + pytorch.CarrySource()
}

// allocatorFile returns a file with the settings of PyTorch's allocator that a baseline represents.
func allocatorFile(r *replay.Result) (string, error) {
	settings := r.Plan.Policy.Settings
	switch {
	case !allocator.InTorch(r.Plan.Policy.Name):
		return "", refuse("%s is not an allocator of PyTorch's", r.Info.Name)
	case settings == "":
		return "", refuse("%s is PyTorch as it is: there is nothing to write", r.Info.Name)
	}
	return fmt.Sprintf(`"""Settings of PyTorch's allocator that %s stands for. Import this before torch."""
import os

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", %s)
`, r.Info.Name, pythonString(settings)), nil
}

// pythonString quotes a string for Python, which reads all escapes that Go writes.
func pythonString(s string) string { return strconv.Quote(s) }
