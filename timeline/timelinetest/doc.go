// Package timelinetest holds test helpers for timeline and the packages above it: two text forms of traces, a
// synthetic training of a million events, and the recordings in GMEMTOP_TRACES.
package timelinetest
