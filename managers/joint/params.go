package joint

// params are the numbers that the planner was tuned with.
type params struct {
	// Work of a call.
	defaultWork int64
	placing     int64
	packShare   int64
	leastPack   int64

	// Chains that run again.
	longestChain int
	mostLooked   int
	farthestKeep int
	chainsAlone  int

	// Prices.
	pace       float64
	learning   int
	dualCopies float64

	// Local search.
	slack        float64
	searchShare  int64
	interference int64
	polishing    int64

	// Places.
	marginSteps int64
	nearMargins int64
	overrated   int64
	firstPack   int64
	noticeable  int64
	tightenOps  int

	// The ladder of limits.
	largeProblem int
	hugeProblem  int
	vastProblem  int
	rungs        [4]int
	rounds       [3]int
	mend         [3]int64
	pack         int64
	schedules    int64
	coarse       int
	probes       int
	nearBound    int64
	tieBuffers   int

	// Sections.
	page           int64
	mostSections   int64
	sectionRows    int
	sectionBuffers int

	// The bound.
	weightRate  float64
	moments     int
	momentsOps  int
	turnsWork   int
	leastTurns  int
	mostTurns   int
	proofTurns  int
	publicTurns int
}

// defaults are the params that every call takes.
func defaults() params {
	return params{
		defaultWork: 10_000_000, placing: 20, packShare: 500, leastPack: 500,
		longestChain: 1024, mostLooked: 8, farthestKeep: 8192, chainsAlone: 20_000,
		pace: 0.2, learning: 20, dualCopies: 0.01,
		slack: 0.004, searchShare: 2, interference: 1024, polishing: 2,
		marginSteps: 32, nearMargins: 4, overrated: 32, firstPack: 8, noticeable: 4096, tightenOps: 4000,
		largeProblem: 4000, hugeProblem: 16_000, vastProblem: 40_000,
		rungs: [4]int{2048, 128, 16, 3}, rounds: [3]int{8, 3, 2}, mend: [3]int64{8, 16, 32},
		pack: 100_000, schedules: 1200, coarse: 16, probes: 3, nearBound: 50, tieBuffers: 20_000,
		page: 2 << 20, mostSections: 1200, sectionRows: 16_000, sectionBuffers: 4000,
		weightRate: 30, moments: 4, momentsOps: 20_000,
		turnsWork: 200_000, leastTurns: 6, mostTurns: 60, proofTurns: 4, publicTurns: 200,
	}
}
