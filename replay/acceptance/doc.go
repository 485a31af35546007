// Package acceptance checks on a user's GPU what gmemtop claims about GPUs, and reports the results without
// revealing who ran it.
//
// The problem: gmemtop is developed without a GPU. Users must be able to check what it claims about GPUs on
// theirs, in minutes, with one command, and send the answer back without anything private in it.
//
// The solution: a list of checks ([Checks]), each a function that runs gmemtop itself and trainings as child
// processes and measures. gmemtop runs as its user runs it, so that a check covers flags, exit codes and JSON
// too, and whatever a driver does to a process, it does to a child. If a training runs beside gmemtop, the
// check also tests whether its results stay bit-identical. A check ends ok, failed, or skipped for lack of
// something that it names; figures are typed numbers. [Run] goes down the list, the most informative check
// first, until the time is up.
//
// Rejected: a shell script, which this replaced. It parsed JSON with Python, printed prose that no program
// could read, and needed a checkout.
//
// It leaves nothing behind. Children run in their own process groups and have a token in their environment,
// by which they are found and ended even if they changed their session. It does not take memory from others:
// networks are chosen by what is free.
//
// Files: check.go the list; run.go the order and the time; child.go and job.go processes; sizes.go the
// networks; device.go, recordings.go, watching.go and plans.go the checks; report.go and figures.go the
// result; redact.go which parts of a message may stay.
package acceptance
