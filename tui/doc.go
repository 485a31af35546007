// Package tui shows timelines in the terminal: the one tea.Model, its components, its key map, its frame.
//
//   - A component (loader, recordings, follow, cursor, filter, display, sharing, toaster, tabs, dialog.Stack) is
//     the only one that writes its state. It does not know the Model: what it wants of others it returns or
//     posts. The Model handles posted messages one after the other; none is handled while another is.
//   - Views read leaf.State and change it by sending the messages of package leaf.
//   - A key goes to the dialog on top, else to the actions that mean the same everywhere, else to the view in
//     front, else to navigation. Results of slow questions go to every view, which know their own.
//   - Keys, help, palette and the hints of the bottom line are made from one table of actions, so none can lie.
//   - Update and View do nothing that grows with the trace: slow questions are commands, late answers are dropped.
//
// It imports timeline and nothing that captures, opens or plans: cmd/gmemtop hands in a Loader and a Planner.
package tui
