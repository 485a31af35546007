// Package recompute has the managers that drop activations and rerun their ops. One of them, pofo, also sends
// results to the host.
//
// Its duties:
//   - sqrt: segments of about sqrt(n) layers, re-run whole (Chen 2016);
//   - rotor: which results of a chain of stages stay in which sweep, by dynamic programming (Beaumont 2019);
//   - rockmate: the same, with blocks that are solved by themselves (Zhao 2023);
//   - pofo: results of stages stay, go to the host or are made again (Beaumont 2021);
//   - torch-budget and sac-ilp: what PyTorch ships (activation_memory_budget, selective checkpointing);
//   - dtr: an online policy that evicts when memory is short, carried out at planning time (Kirisame 2021);
//   - checkmate and checkmate-lp: a mixed-integer program over stages, solved or rounded (Jain 2020);
//   - [Eager]: turns any decisions into what PyTorch can carry out today.
//
// Package chain determines what to rerun for a dropped buffer; package place determines where buffers lie.
package recompute

import (
	"github.com/gmemtop/gmemtop/managers/plan"
)

// All returns the package's managers, simplest first.
func All() []plan.Manager {
	return []plan.Manager{Sqrt(), Rotor(), rockmate{}, torchBudget{}, sac{}, DTR(), CheckmateLP(),
		Checkmate(), pofo{}}
}
