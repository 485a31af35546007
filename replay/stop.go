package replay

import (
	"context"
	"errors"
	"slices"
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
