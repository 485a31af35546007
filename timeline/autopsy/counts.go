package autopsy

import "github.com/gmemtop/gmemtop/timeline"

// Counts in sentences, with separators between thousands: 1 block, 12,345 blocks.

func count(n int) string { return timeline.Count(int64(n)) }

func nBlocks(n int) string { return timeline.Counted(n, "block") }

func nCalls(n int) string { return timeline.Counted(n, "call") }

func nSteps(n int) string { return timeline.Counted(n, "step") }
