// Package steps finds the training steps of a recording and the phases within them: as the source marks them,
// by the optimizer's work, or by what repeats. It compares steps, finds what grows from one to the next, and
// watches the steps of a job that runs.
package steps
