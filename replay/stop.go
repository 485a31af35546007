package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// ErrStopped is the cause with which a caller cancels a comparison's context to keep what there is so far.
var ErrStopped = errors.New("planning was stopped early")

// Stopped reports whether a context was cancelled with [ErrStopped].
func Stopped(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrStopped) }

// unlessStopped returns a context that ends when ctx does, except when ctx ends with [ErrStopped]: the plans
// so far are still measured then, which takes a moment. The caller calls release.
func unlessStopped(ctx context.Context) (finish context.Context, release func()) {
	finish, cancel := context.WithCancel(context.WithoutCancel(ctx))
	off := context.AfterFunc(ctx, func() {
		if !Stopped(ctx) {
			cancel()
		}
	})
	return finish, func() {
		off()
		cancel()
	}
}

const (
	// noteStopped is the note of a plan that its manager would have gone on improving.
	noteStopped = "planning was stopped early: this is the best plan so far"
	noPlanYet   = "planning was stopped before it had a plan"
	neverBegan  = "planning was stopped before its turn"
	// StoppedEarly marks results that planning for longer might improve.
	StoppedEarly = "stopped early"
)

// markStopped marks results as the best so far.
func markStopped(results []Result) {
	for i := range results {
		r := &results[i]
		r.Stopped = true
		if r.Plan != nil && !slices.Contains(r.Plan.Notes, noteStopped) {
			r.Plan.Note(noteStopped)
		}
	}
}

// Name is the manager's name, with a mark if planning was stopped early.
func (r *Result) Name() string {
	if r.Stopped {
		return r.Info.Name + ", " + StoppedEarly
	}
	return r.Info.Name
}

// stoppedClause says which plans are the best so far, because planning was stopped early, "" if none is.
func (p prose) stoppedClause() string {
	var with []string
	without := map[string]bool{}
	for i := range p.Results {
		switch r := &p.Results[i]; {
		case !r.Stopped:
		case !r.Available:
			without[r.Info.Name] = true
		case !slices.Contains(with, r.Info.Name):
			with = append(with, r.Info.Name)
		}
	}
	var parts []string
	switch n := len(with); {
	case n == 1:
		parts = append(parts, with[0]+" gives its best plan so far")
	case n > 1:
		parts = append(parts, fmt.Sprintf("%s and %s give their best plans so far",
			strings.Join(with[:n-1], ", "), with[n-1]))
	}
	for _, name := range with {
		delete(without, name)
	}
	switch n := len(without); {
	case n == 1:
		parts = append(parts, "1 manager has no plan yet")
	case n > 1:
		parts = append(parts, timeline.Counted(n, "manager")+" have no plan yet")
	}
	if len(parts) == 0 {
		return ""
	}
	return " Stopped early: " + strings.Join(parts, ", ") + "."
}

// notBegun are the results of managers that had not begun when planning was stopped.
func (x *contest) notBegun(managers []plan.Manager) []Result {
	var all []Result
	for _, m := range managers {
		all = append(all, Result{Info: m.Info(), Target: x.opt.Targets[0].Name(), Reason: neverBegan,
			Stopped: true})
	}
	return all
}
