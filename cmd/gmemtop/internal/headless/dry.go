package headless

import (
	"context"
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/timeline"
)

// Attaching says what attaching to a process would do. The error says why it is not possible.
func Attaching(pid int) (lines []string, err error) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	f := inject.Check(pid)
	if f.Command != "" {
		say("process %d: %s", pid, f.Command)
	}
	if f.Python != "" {
		say("Python %s, %s", f.Python, timeline.Counted(f.Threads, "thread"))
	}
	if err := pytorch.OtherVersion(pid); err != nil {
		return lines, err
	}
	if pytorch.Lives(pid) {
		say("attaching connects to its agent, beside other viewers; the process is not stopped")
		return lines, nil
	}
	if len(f.Plan) > 0 {
		say("this is what attaching does:")
	}
	for i, s := range f.Plan {
		say("  %d. %s", i+1, s)
	}
	for _, way := range f.Ways {
		if way.Obstacle != nil && len(f.Plan) == 0 { // one way is enough
			say("not by %s: %s", way.Mechanism, way.Obstacle)
		}
	}
	for _, s := range f.Notes {
		say("note: %s", s)
	}
	var l procs.Lister
	if p, err := l.Look(pid); err == nil && f.Err() == nil && !p.Torch {
		say("note: torch is not loaded in it, so the agent would refuse: attach once the program has " +
			"imported it, or name the process that trains")
	}
	return lines, f.Err()
}

// Trainings lists the processes that have torch loaded, and why some of them cannot be attached to.
func Trainings(ctx context.Context) (lines []string, err error) {
	var l procs.Lister
	list, err := l.Torch(ctx)
	if errors.Is(err, procs.ErrNotLinux) {
		err = exit.AsUnsupported(err)
	}
	if err != nil {
		return nil, err
	}
	for i := range list {
		why := ""
		if err := inject.Check(list[i].PID).Err(); err != nil && !pytorch.Lives(list[i].PID) {
			why = "  (cannot be watched: " + err.Error() + ")"
		}
		lines = append(lines, fmt.Sprintf("%8d  %-10s %s%s", list[i].PID, list[i].User, list[i].Command(),
			why))
	}
	if len(list) == 0 {
		return []string{"no process here has torch loaded: gmemtop run -- python train.py starts one"}, nil
	}
	return append(lines, fmt.Sprintf("to watch one: gmemtop attach %d", list[0].PID)), nil
}
