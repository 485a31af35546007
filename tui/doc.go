// Package tui shows timelines in the terminal: the one tea.Model, its components, its key map, its frame.
//
//   - A component (loader, recordings, follow, cursor, filter, display, sharing, toaster, tabs, dialog.Stack)
//     is the only writer of its state. It does not know the model: it returns or posts what it wants from
//     others. The model handles posted messages one at a time.
//   - Views read leaf.State and change it by sending the messages of package leaf.
//   - A key goes to the dialog on top, else to the actions that mean the same everywhere, else to the view in
//     front, else to navigation. Results of slow questions go to every view, which know their own.
//   - Keys, help, palette and the hints of the bottom line are all made from one table of actions.
//   - Update and View do nothing that grows with the trace: slow questions are commands, late answers are
//     dropped.
//
// It imports timeline and nothing that captures, opens or plans: cmd/gmemtop hands in a Loader and a Planner.
package tui
