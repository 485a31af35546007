// Package planner plans for the screen's Managers view.
//
// Its duties:
//   - [Planner] plans an iteration with managers on the simulator, and measures the plans on a GPU;
//   - [Live] also has plans carried out in the training that the screen watches;
//   - [Device] is a GPU that was opened, and what copies and launches were measured to cost on it;
//   - [Choose] is how a manager's plan becomes what package crew carries out.
//
// It belongs to cmd because planners know no target and targets no planner; here the two meet.
package planner
