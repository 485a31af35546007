// Package crew has plans carried out in a training that runs, in all of its processes.
//
// Its duties:
//   - [Member] is one process of the training, as package live drives it: what it did comes out of its
//     session, and orders go through its connection;
//   - [Choice] is what the training is to be run with: where its plan comes from, and on what terms;
//   - [Crew] is all processes. [Crew.Train] describes, plans, switches and measures each at its own steps for
//     as long as one likes; [Target] has plans measured one after the other;
//   - [Turns] lets one at a time use the training that a screen shows.
//
// # One training
//
// The ranks of torchrun are one training: a plan is carried out in all of them or it saves nothing, since the
// rank that holds most runs out of memory, and all wait for the slowest.
//
// Each rank is described, planned for, switched and measured by itself, by the same code that does so for a
// training of one process; a gate has them begin what is measured together. Ranks of one shape share a plan:
// their descriptions show whether two are alike; ranks of a pipeline, or the first and the last part of a
// sharded model, are not. Ranks do not depend on each other: one that refuses, ends or
// comes late does not hold up the others, and what they learn is the same to the bit whether a plan is on in
// one, in some or in all.
//
// Ranks on other machines are not seen from here.
package crew
