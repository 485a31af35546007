// Package feed shows what is watched: it makes the looks that package tui draws of what capture knows.
//
// Its duties:
//   - [Process] is a watched process: what was captured whole becomes timelines, off the screen's event loop,
//     and what is wrong with its steps is found;
//   - [Job] is a command: the feed of the process that is chosen, with the list of all of them;
//   - [Probes] is a process that is watched by probes, whose rows are intervals of time;
//   - [Machine] is the machine with its GPUs and the processes that can be watched.
//
// It stands beside cmd since neither of the two sides knows the other: the screen captures nothing, and what
// captures knows no timeline.
package feed
