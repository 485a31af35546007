// Package milp solves mixed-integer linear programs, and gives the row duals of linear ones.
//
// # The problem
//
// Several planners of this program reduce to "which of these tensors stay on the device while which budgets
// hold": a linear cost over binary and continuous variables under sparse linear rows. The package takes such
// a [Model],
//
//	minimise c·x
//	subject to rowLower <= A·x <= rowUpper, lower <= x <= upper, x[j] whole where the model says so,
//
// and returns a [Solution] whose every claim that can be checked was checked here, in Go.
//
// # The approach
//
// The solver is HiGHS (Huangfu and Hall, "Parallelizing the dual revised simplex method", Mathematical
// Programming Computation 10, 2018; highs.dev), compiled to WebAssembly, embedded in the program and run by
// wazero's compiler. So there is no cgo, nothing to install, and the same solver on every machine. An
// executable of HiGHS, CBC or GLPK found on PATH can be used instead ([SolverNative], and [SolverAuto] for
// HiGHS itself), for the factor of two that WebAssembly costs and for its threads.
//
// Four things a wrapper usually leaves to luck are settled here:
//
//   - The clock is ours. WebAssembly has no clock except the one its host lends it, and HiGHS looks at the
//     clock every few steps of work to see whether its time is up. The clock lent here does not tell the
//     time: it counts how often it was read. That count is the same on every run and every machine, so
//     [Options.MaxWork] is a limit in counted work that, unlike a limit in seconds, gives the same answer
//     twice. When the caller's context ends, or [Options.TimeLimit] passes, the clock jumps past HiGHS' time
//     limit, and HiGHS stops by itself and hands over the best solution it has. Rejected: wazero's
//     WithCloseOnContextDone, which checks inside every loop, costs a factor of three, and kills the instance
//     with its solution in it.
//   - Numbers are scaled. HiGHS' tolerances are absolute (1e-6), and a row in bytes has coefficients of 1e10,
//     where 1e-6 is below what a float64 resolves. Rows and costs are multiplied by powers of two, which is
//     exact, and duals are scaled back.
//   - Nothing is believed. Whole variables are rounded to whole numbers, and rows, bounds and cost are
//     computed again from the caller's model; a point that fails is repaired or refused, be it a solver's or
//     the caller's. The bound of a linear program is computed from its duals, which prove it by weak duality
//     whether or not the solver was right.
//   - Memory is bounded. Each solve has a fresh instance of its own, with at most [Options.MaxMemory]; a
//     counting semaphore keeps the number of instances at the number of processors.
//
// Complexity: building a model is linear in its entries; solving is exponential in the worst case, as it must
// be. Give a gap.
//
// # Reproducibility
//
// The WebAssembly solver gives the same answer, to the bit, for the same model and options as long as it is
// not stopped by the context or by TimeLimit. Prefer MaxNodes or MaxWork, and keep TimeLimit as a safety net.
// A native solver promises only what its authors do; CBC and GLPK stopped by time, or run on several threads,
// do not repeat themselves.
package milp
