// Package crew carries plans out in a running training, in all of its processes.
//
// Its duties:
//   - [Member] is one process of the training, as package live drives it: steps come from its
//     session, and orders go through its connection;
//   - [Choice] is the plan to run the training with: where it comes from, and its terms;
//   - [Crew] is all processes. [Crew.Train] describes, plans, switches and measures each at its own steps,
//     for as long as you like; [Target] measures plans one after the other;
//   - [Turns] lets one caller at a time use the training on the screen.
//
// # One training
//
// The ranks of torchrun are one training: a plan saves memory only if all of them carry it out, since the
// rank that holds most is the one that runs out, and all wait for the slowest.
//
// Each rank is described, planned for, switched and measured by itself, with the same code as a training of
// one process; a gate makes them start measurements together. Ranks of one shape share a plan: their
// descriptions show whether two are alike; ranks of a pipeline, or the first and the last part of a sharded
// model, are not. Ranks do not depend on each other: one that refuses, ends or joins late does not hold up
// the others, and they learn the same to the bit whether a plan is on in one, some or all of them.
//
// Ranks on other machines are out of reach.
package crew
