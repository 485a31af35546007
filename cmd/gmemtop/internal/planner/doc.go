// Package planner plans for the screen's Managers view.
//
// Its duties:
//   - [Planner] plans an iteration with managers on the simulator, and measures the plans on a GPU;
//   - [Live] also carries plans out in the training that the screen watches;
//   - [Device] is an open GPU with its measured costs of copies and launches;
//   - [Wanted.Choice] is how a manager's plan becomes what package crew carries out.
//
// It belongs to cmd because planners and targets may not import each other.
package planner
