// Package steps finds the training steps of a recording and the phases within them: from the source's marks,
// the optimizer's work, or what repeats. It compares steps, finds what grows from one to the next, and
// watches the steps of a running job.
package steps
