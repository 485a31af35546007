// Package timelinetest has what the tests of timeline and of the packages above it share: two text forms of
// traces, a training made up of a million events, and the recordings that GMEMTOP_TRACES names.
package timelinetest
