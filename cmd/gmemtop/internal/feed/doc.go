// Package feed turns what capture knows about watched processes into the looks that package tui draws.
//
// Its duties:
//   - [Process] is a watched process: it turns captured windows into timelines, off the screen's event loop,
//     and finds what is wrong with its steps;
//   - [Job] is a command: the feed of the chosen process, with the list of all processes;
//   - [Probes] is a process that is watched by probes, whose rows are intervals of time;
//   - [Attached] is a process that was attached to, with its feed;
//   - [Capturing] captures steps of ranks on other machines, and [Outliers] names those unlike the others;
//   - [Machine] is the machine with its GPUs and the processes that can be watched.
//
// It belongs to cmd because neither side may import the other: tui does not capture, and capture has no
// timelines.
package feed
