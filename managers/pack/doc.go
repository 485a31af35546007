// Package pack places buffers with known lifetimes into one address space: the dynamic storage allocation
// problem.
//
// Given items with a half-open lifetime [Start, End) and a size, it looks for offsets such that items that
// live at the same moment never share an address, and either makes the top (the largest offset + size) as low
// as it can or meets a given capacity. The problem is strongly NP-hard; it is two-dimensional packing of
// rectangles that may slide in one direction only.
//
// The package has three tiers, each usable on its own:
//
//   - BestFit and FirstFit: one pass in a fixed order, the rule of SmartPool (Zhang, Yeung, Shu, He, Wang:
//     "Efficient Memory Management for GPU-based Deep Learning Systems", 2019), made fast enough for hundreds
//     of thousands of items by an index of address ranges.
//   - Exact: an anytime search that begins with greedy answers, improves them, and certifies the result where
//     it meets the lower bound or the search was exhausted.
//   - LowerBound and Validate: what no packing can beat, and whether an answer is a packing; written apart
//     from the solvers.
//
// Everything is deterministic: equal problem, seed and work limit give equal offsets, whatever the number of
// processors.
package pack
