// Package runs compares recordings: the many ranks of one run, on one clock, and two recordings at their
// peaks; and the processes that train together while they run.
package runs
