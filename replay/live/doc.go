// Package live carries plans out in a running training. From its next step on, the process itself trains with
// the plan.
//
//   - [Encode] writes a plan for the agent in the process: which of the tensors that autograd saves leave
//     memory, and how they come back.
//   - [EncodePool] does so for a plan that chooses addresses: the allocations of a step in order, each with
//     its place in one arena.
//   - [Target] makes the process a target of package replay. [Target.Run] times a plan between two stretches
//     without one; [Target.Hold] keeps a plan on until it is told to stop.
//
// Package crew implements [Carrier], through which this package reaches the process.
package live
