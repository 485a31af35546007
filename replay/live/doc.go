// Package live carries plans out inside of a training that runs: press a key and the process itself trains
// with them from its next step on.
//
// Its duties:
//   - [Encode] says a plan in the words of the agent in the process: which of the tensors that autograd saves leave memory, and how they come back;
//   - [EncodePool] does so for plans that choose addresses: the allocations of a step in order, each with its place in one arena;
//   - [Target] is the process as replay's targets are: [Target.Run] has a plan carried out and measures it between two stretches without, [Target.Hold]
//     keeps it up for as long as one likes.
//
// The process is reached through [Member], which package crew makes of what watches it.
package live
