package steps_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// A forward has the line of the program that calls it, or no caller if there is none (DataParallel calls
// replicas in threads of its own).
func TestTheCallerOfAForwardIsTheLineOfTheProgram(t *testing.T) {
	const module = "_call_impl torch/nn/modules/module.py:1"
	const thread = "_worker torch/nn/parallel/parallel_apply.py:9 < run /usr/lib/python3.11/threading.py:1"
	for _, c := range []struct{ name, stack, want string }{
		{"called by the program", "forward model.py:10 < " + module + " < main train.py:5",
			"main train.py:5"},
		{"a module in a module", "forward model.py:10 < " + module + " < forward model.py:3 < " + module +
			" < main train.py:5", "main train.py:5"},
		{"in a thread of the library", "forward model.py:10 < " + module + " < " + thread, "none"},
		{"nothing but the module", module, "none"},
		{"DTensor's functions, which are no model", "forward torch/distributed/tensor/_redistribute.py:9 < " +
			"apply torch/autograd/function.py:5 < main train.py:5", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := timelinetest.Script(t, "gpu 0\nstack fwd "+c.stack+"\n+ a 1m fwd\n").Devices[0]
			var got []string
			for _, p := range steps.Parts(d) {
				got = append(got, caller(d, p))
			}
			if s := strings.Join(got, ", "); s != c.want {
				t.Errorf("callers are %s, want %s", s, c.want)
			}
		})
	}
}

func caller(d *timeline.Device, p steps.Part) string {
	if p.Caller < 0 {
		return "none"
	}
	fn, file, line := d.Timeline().Places().FrameText(p.Caller)
	return fmt.Sprintf("%s %s:%d", fn, file, line)
}

// Two networks that run one after the other are two forward passes, and so is one network that a line calls
// again after other work; work within one pass does not split it.
func TestForwardPassesOfDifferentCallersAreParts(t *testing.T) {
	const module = "_call_impl torch/nn/modules/module.py:1"
	script := "gpu 0\n"
	for name, line := range map[string]int{"g": 5, "h": 6} {
		script += fmt.Sprintf("stack %s forward model.py:10 < %s < main train.py:%d\n", name, module, line)
	}
	script += "stack other load data.py:3 < main train.py:4\n" +
		"+ a 1m g\n+ b 1m g\n+ c 1m h\n+ d 1m other\n+ e 1m h\n"
	d := timelinetest.Script(t, script).Devices[0]
	var got []string
	for _, p := range steps.Parts(d) {
		got = append(got, fmt.Sprintf("[%d, %d) %s", p.First, p.End, caller(d, p)))
	}
	want := "[0, 2) main train.py:5, [2, 3) main train.py:6, [4, 5) main train.py:6"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("parts are %s, want %s", s, want)
	}
}
