// Package tui shows timelines in the terminal: the one tea.Model, its key map, its dialogs, its frame.
//
//   - The root (Model) owns what all views share (leaf.State): cursor, selection, window, filter, mark, device. Views change it by
//     sending the messages of package leaf.
//   - A message goes to the dialog on top, else to the keys that mean the same everywhere, else to the view in front, else to the keys
//     of navigation; results of slow questions go to every view, which know their own.
//   - Keys, help, palette and the hints of the bottom line are made from one table of actions, so none of them can lie.
//   - Update and View do nothing that grows with the trace: slow questions are commands, their late answers are dropped.
//
// It imports timeline and nothing that captures, opens or plans: cmd/gmemtop hands in a Loader and a Planner.
package tui
