// Package feed turns what capture knows of watched processes into the looks that package tui draws.
//
// Its duties:
//   - [Process] is a watched process: what was captured whole becomes timelines, off the screen's event loop,
//     and what is wrong with its steps is found;
//   - [Job] is a command: the feed of the process that is chosen, with the list of all of them;
//   - [Probes] is a process that is watched by probes, whose rows are intervals of time;
//   - [Machine] is the machine with its GPUs and the processes that can be watched.
//
// It belongs to cmd because neither side may import the other: tui does not capture, and capture has no
// timelines.
package feed
