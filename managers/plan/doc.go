// Package plan is what planners and targets share: the problem, the plan, whether the plan is correct, and
// the measurements of carrying it out.
//
// Its duties:
//   - [Problem]: one iteration of steady state, taken from a timeline by [FromDevice] or computed from layer
//     shapes;
//   - [Plan]: what a manager decided, as decisions ([Absence], [Rerun], variants) and as the program of steps
//     that [Assemble] makes of them;
//   - [Plan.Order]: the waits between queues that make the program safe in any timing;
//   - [Validate]: an independent check that every op finds the bytes that it had in the recording, written
//     apart from all planners;
//   - [Manager], [Request], [Evaluator]: how planners are asked;
//   - [Measurement]: what a target measured, the same for the simulator, a device and the live process.
//
// Positions: op i of an iteration of n ops is also the moment before it begins; n is the iteration's end.
// Lifetimes are half-open in ops. Bytes and nanoseconds are int64.
package plan
