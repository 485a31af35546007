package steps_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// letters is a recording in which each letter is one event. A capital allocates 1 MiB, with these stacks: F
// and G are forwards that two lines of the program call, B is the autograd engine, O and P are optimizers
// that two lines step, Z is zero_grad, X is the training loop, N has no stack. A small letter frees the
// letter's oldest block; its two events have one time, so it counts as two moments.
func letters(t *testing.T, text string) *timeline.Device {
	t.Helper()
	const module = "_call_impl torch/nn/modules/module.py:1"
	const adamw = "_single_tensor_adamw torch/optim/adamw.py:50 < step torch/optim/adamw.py:30"
	script := "gpu 0\n" +
		"stack F forward model.py:10 < " + module + " < main train.py:5\n" +
		"stack G forward model.py:10 < " + module + " < main train.py:6\n" +
		"stack B torch::autograd::Engine::thread_main ??:0\n" +
		"stack O " + adamw + " < main train.py:7\n" +
		"stack P " + adamw + " < main train.py:8\n" +
		"stack Z zero_grad torch/optim/optimizer.py:90 < main train.py:9\n" +
		"stack X load data.py:3 < main train.py:4\n"
	made, freed := map[rune]int{}, map[rune]int{}
	for _, r := range strings.ReplaceAll(text, " ", "") {
		switch of := unicode.ToUpper(r); {
		case r == 'N':
			script += fmt.Sprintf("+ N%d 1m\n", made[r])
			made[r]++
		case r == of:
			script += fmt.Sprintf("+ %c%d 1m %c\n", r, made[r], r)
			made[r]++
		default:
			script += fmt.Sprintf("- %c%d\n", of, freed[of])
			freed[of]++
		}
	}
	return timelinetest.Script(t, script).Main()
}

// text returns the letters of the moments [first, end).
func text(d *timeline.Device, letters string, first, end timeline.Moment) string {
	letters = strings.ReplaceAll(letters, " ", "")
	at, got := timeline.Moment(0), ""
	for _, r := range letters {
		if at >= first && at < end {
			got += string(r)
		}
		if at++; unicode.IsLower(r) {
			at++
		}
	}
	if end > timeline.Moment(d.Len()) || at != timeline.Moment(d.Len()) {
		got += "?"
	}
	return got
}

// A part ends after its last allocation, the last one and a forward where the next thing begins.
func TestPartsAreRunsOfAllocationsOfOnePhase(t *testing.T) {
	for _, c := range []struct{ why, letters, want string }{
		{"nothing to learn from", "XXNNxx", ""},
		{"a step", "X FFF BbfBbfBbf Oo x", "FFF 3M by 1, BbfBbfB 1M, Oox 0M"},
		{"the constructor and zero_grad are no parts", "Z F B O Z", "F 1M never, B 1M, OZ 2M"},
		{"another line, or work in between, is another forward", "FF G FXF B",
			"FF 2M never, G 1M never, F 1M never, F 1M never, B 1M"},
		{"the loss before a backward ends the forward", "FFX BfBf", "FF 2M by 1, BfBf 2M"},
		{"the engine's threads have no frames", "F BNNN O", "F 1M never, BNNN 4M, O 1M"},
		{"without frames in a forward", "F NN F", "F 1M never, F 1M never"},
		{"work between optimizers of one step", "B O X O", "B 1M, OXO 3M"},
		{"two forwards, freed in turn", "FFF GG BBgg BBfff", "FFF 3M by 2, GG 2M by 2, BBggBBfff 4M"},
		{"most is freed by the first of two", "FFFFF Bffff Of", "FFFFF 5M by 1, B 1M, Of 1M"},
		{"most is freed by the second of two", "FFFFF Bf Offff", "FFFFF 5M by 2, B 1M, Offff 1M"},
		{"as much by both: the later one", "FFFF Bff Off", "FFFF 4M by 2, B 1M, Off 1M"},
		{"as much never: a part", "FF Bf", "FF 2M by 1, Bf 1M"},
		{"most never", "FFF Bf", "FFF 3M never, Bf 1M"},
		{"freed within", "FFff B", "FFff 0M never, B 1M"},
	} {
		d := letters(t, c.letters)
		for range 8 { // the order of a map must not matter
			var got []string
			for _, p := range steps.Parts(d) {
				s := fmt.Sprintf("%s %dM", text(d, c.letters, p.First, p.End), p.Kept>>20)
				if p.Caller >= 0 && p.Frees >= 0 {
					s += fmt.Sprint(" by ", p.Frees)
				} else if p.Caller >= 0 {
					s += " never"
				}
				got = append(got, s)
			}
			if s := strings.Join(got, ", "); s != c.want {
				t.Errorf("%s, %s\nhas the parts %s\n  and not the %s", c.why, c.letters, s, c.want)
				break
			}
			d = letters(t, c.letters)
		}
	}
}

func TestAStepEndsWithTheOptimizersWork(t *testing.T) {
	for _, c := range []struct{ why, letters, want string }{
		{"two steps", "FBOo fb FBOo fb", "FBOofb FBOofb"},
		{"building the model is no part of the first", "XXZ FBO FBO", "FBO FBO"},
		{"cut", "FBO FBO FB", "FBO FBO FB"},
		{"the loop after the last step", "FBO FBO XX", "FBO FBO"},
		{"the optimizer pauses", "FBOXO FBOXO", "FBOXO FBOXO"},
		{"accumulation", "FBFBFBO FBFBFBO", "FBFBFBO FBFBFBO"},
		{"two optimizers in turn: the last of equals", "FBO FBP FBO FBP", "FBOFBP FBOFBP"},
		{"two optimizers: the one with the most runs", "FBO FBO FBP FBO FBO FBP FBO",
			"FBO FBO FBPFBO FBO FBPFBO"},
		{"two optimizers one after the other", "FBOP FBOP", "FBOP FBOP"},
		{"nothing but an optimizer", "OO", "OO"},
	} {
		d := letters(t, c.letters)
		it := steps.Of(d)
		var got []string
		if it.Source == steps.FromOptimizer {
			for _, x := range it.List {
				got = append(got, text(d, c.letters, x.First, x.End))
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s, %s\nhas the steps %s\n  and not the %s", c.why, c.letters, s, c.want)
		}
	}
}
