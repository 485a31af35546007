package joint

import "github.com/gmemtop/gmemtop/traces/torchalloc"

// The numbers that the planner was tuned with.
//
// What one was chosen from is said where it is known; most were set by trial, and the trials were not
// written down. What changes when one is moved is measured by BenchmarkParams: 40 plans of three
// networks, 12 random problems, four without copy engines and two chains, each of a million counted work,
// on the simulator. A figure is the mean change of the step time, in brackets those of the best and the
// worst plan; a plus is slower. A search that is moved at all ends elsewhere, so that some tenths of a
// percent either way say little.

// params are the numbers that the planner was tuned with.
type params struct {
	// Counted work: positions, gaps and accesses looked at.

	// defaultWork is the work of a call that says nothing: a second or two. The benchmark sets its own work,
	// so that moving this one was not measured.
	defaultWork int64
	// placing is what a step of a plan that is placed and measured counts for. Halved: -0.05 % (-1.0 to
	// +0.0 %), work -23 %. Doubled: +0.07 % (+0.0 to +1.1 %), work +51 %.
	placing int64
	// packShare gives a search for places one part in so many of the work. Halved: +0.06 % (-2.2 to +5.7 %),
	// work +1 %. Doubled: +0.57 % (-1.6 to +11.7 %), 1 plan fewer fits, work +15 %.
	packShare int64
	// leastPack is the least work of a search for places. The benchmark has work for more. Halved and
	// doubled: no step time changes.
	leastPack int64

	// Chains of ops that run again. These bounds are for longer iterations than the benchmark has.

	// longestChain bounds the ops of one rerun. Halved and doubled: no step time changes.
	longestChain int
	// mostVisited bounds the ops looked at for all reruns, in vain or not, as a multiple of the iteration's.
	// Halved: no step time changes. Doubled: no step time changes, work +1 %.
	mostVisited int
	// farthestRetained bounds the positions over which a chain's result is retained: what is needed later is
	// made again. Halved and doubled: no step time changes.
	farthestRetained int
	// chainsAlone bounds the gaps whose chains are looked at one by one before planning. The benchmark has
	// fewer. Halved and doubled: no step time changes.
	chainsAlone int

	// Prices.

	// pace is how far prices move towards what a schedule has shown: all the way, choices would swing to and
	// fro. Halved and doubled: no step time changes.
	pace float64
	// updates is how often prices are moved. Halved: -0.03 % (-0.4 to +0.0 %). Doubled: -0.03 % (-0.4 to
	// +0.0 %).
	updates int
	// dualCopies is the share of its own time that a copy costs beside its dual price, so that free copies
	// are told apart. Halved and doubled: no step time changes.
	dualCopies float64
	// copyPrices are the prices of copying that are swept, the likelier first. Other grids were not
	// measured.
	copyPrices []float64
	// dearer is how much is added to the price of copying that served best, to try a dearer one. Halved and
	// doubled: no step time changes.
	dearer float64
	// cheaper is what that price is multiplied by, to try a cheaper one. Halved and
	// doubled: no step time changes.
	cheaper float64
	// dualScales are the factors of dual prices that are swept. Other grids were not measured.
	dualScales []float64
	// fillShares are the shares of cheap reruns that are kept out of filled copy engines. Other grids were
	// not measured.
	fillShares []float64

	// Local search.

	// slack is how much slower than the best a move may be at first; it falls to nothing halfway. Halved:
	// +0.09 % (-2.1 to +5.7 %), work +1 %. Doubled: +0.03 % (-3.4 to +5.4 %), work +6 %.
	slack float64
	// deepSlack is the same for each search from other plans. Set by the exact times of small problems.
	deepSlack []float64
	// deepTries is how many schedules a search from plans must have for there to be several of them.
	deepTries int64
	// fewTries is how many it must have to be made at all.
	fewTries int64
	// searchShare leaves prices one part in so many of the work, the rest is for moves. Halved: +0.18 %
	// (-6.9 to +15.1 %), work +8 %. Doubled: +0.76 % (-12.5 to +17.6 %), work +6 %.
	searchShare int64
	// mix says how many moves change choices in which way, retimings how many change positions. Other mixes
	// were not measured.
	mix       mix
	retimings retimings
	// press is the price of a byte above its limit in a search from plans, in times of copying it out and in:
	// at first, and at the end. Other prices were not measured.
	press [2]float64
	// interference is the part of the time from which addresses cost enough to try choices on the evaluator.
	// Halved and doubled: no step time changes.
	interference int64
	// polishing is the part of a rung's work that trying choices on the evaluator gets. Halved: -0.05 %
	// (-1.0 to +0.0 %), work +10 %. Doubled: +0.07 % (+0.0 to +1.1 %), work -3 %.
	polishing int64

	// Places.

	// marginSteps lowers limits at first by one part in so many of the memory that is not taken all the
	// time. Halved: +0.07 % (+0.0 to +1.7 %), work -1 %. Doubled: +0.06 % (-0.8 to +3.8 %), work +1 %.
	marginSteps int64
	// nearMargins is the part of that step below which two margins are as good as the same. Halved: no step
	// time changes. Doubled: no step time changes, work -2 %.
	nearMargins int64
	// overrated is the part by which a schedule may overrate a plan's time: who is slower than the incumbent
	// by more is hopeless. Halved: +0.13 % (-3.8 to +8.5 %), work +3 %. Doubled: -0.36 % (-12.9 to +0.5 %).
	overrated int64
	// firstPack is the part of a search for places that the first round gets, when it is mostly in vain.
	// Halved and doubled: no step time changes.
	firstPack int64
	// noticeable is the part of the time below which addresses are said to cost nothing. Halved and doubled:
	// no step time changes.
	noticeable int64
	// tightenOps is the most ops for which limits are lowered position by position. The benchmark has fewer.
	// Halved and doubled: no step time changes.
	tightenOps int

	// The ladder of limits. A problem is large, huge or vast by twice its buffers (or large by ops and
	// buffers).

	// largeProblem is where placing a plan takes most of the time. Halved: no step time changes. Doubled: no
	// step time changes, work +4 %.
	largeProblem int
	// hugeProblem is beyond the benchmark. Halved and doubled: no step time changes.
	hugeProblem int
	// vastProblem is beyond the benchmark. Halved and doubled: no step time changes.
	vastProblem int
	// rungs are the rungs of a problem of each size. A hundred rungs for every call took ten seconds for a
	// budget, and were still too far apart. Halved: +0.26 % (-5.3 to +5.7 %), work +8 %. Doubled: +0.44 %
	// (-4.4 to +9.8 %), work +4 %.
	rungs [4]int
	// rounds is how often one limit is planned for at the most, by size. Halved: +0.12 % (-0.6 to +4.8 %),
	// work -5 %. Doubled: no step time changes, work +7 %.
	rounds [3]int
	// mend gives the repair of choices one part in so many of a rung's work, by size. Halved: -0.22 % (-13.9
	// to +9.8 %), work +7 %. Doubled: +0.62 % (-0.9 to +9.8 %), work +2 %.
	mend [3]int64
	// pack is the most work of a search for places. The benchmark has work for less. Halved and doubled: no
	// step time changes.
	pack int64
	// schedules is how many a view of a rung gets at the least where one takes long: half for prices, of
	// which some two hundred are tried. With 200 in all, step times on a recording of 6,000 ops and 1,200
	// buffers were up to a third longer. The benchmark has no such problem. Halved and doubled: no step time
	// changes.
	schedules int64
	// coarse is the part of all rungs from which a halving is coarse, and probed. Halved: +0.17 % (+0.0 to
	// +5.4 %), work -12 %. Doubled: -0.03 % (-1.0 to +0.0 %), work +10 %.
	coarse int
	// probes is how many more limits a coarse rung is planned for. Halved: +0.58 % (+0.0 to +11.2 %), work
	// -36 %. Doubled: -0.09 % (-3.6 to +0.4 %), work +47 %.
	probes int
	// nearBound is the part of the bound within which a probe is not worth it. Halved: +0.01 % (+0.0 to
	// +0.5 %), work -4 %. Doubled: no step time changes, work +3 %.
	nearBound int64
	// nearEnough is the part of the bound within which none of the quickest managers is asked where planning
	// takes seconds; within farEnough none of the others is, and no search is made from plans.
	nearEnough, farEnough int64
	// luck is the part by which what a manager decides may be slower than what is known for its plan to get
	// places in any case: a plan that is hardly slower may serve to search on from.
	luck int64
	// quick is how many of the other managers count as quick.
	quick int
	// tieBuffers is how many buffers a problem may have for ties to be broken by a smaller footprint. With
	// more, others are asked until the bound is met. The benchmark has fewer. Halved and doubled: no step
	// time changes.
	tieBuffers int

	// Sections.

	// page is the granularity at which virtual memory gives an op sections that are not neighbours: CUDA's.
	// Halved: no step time changes. Doubled: -0.30 % (-8.7 to +0.0 %), work -1 %.
	page int64
	// mostSections bounds the sections of all buffers: beyond it the search costs more than finer ones
	// bring. Halved: -0.28 % (-8.7 to +0.5 %). Doubled: no step time changes, work +1 %.
	mostSections int64
	// sectionRows bounds the ops and buffers together of a problem in sections. Halved and doubled: no step
	// time changes.
	sectionRows int
	// sectionBuffers bounds the buffers of a problem in sections. Halved and doubled: no step time changes.
	sectionBuffers int

	// The bound.

	// weightRate is the rate of the multiplicative updates at first; it falls with the root of the turn.
	// Halved: no step time changes, work +1 %. Doubled: no step time changes, work -1 %.
	weightRate float64
	// moments is how many moments are looked at, the fullest of as many parts of the iteration. Halved and
	// doubled: no step time changes.
	moments int
	// momentsOps is how many ops make one moment enough. The benchmark has fewer. Halved and doubled: no
	// step time changes.
	momentsOps int
	// turnsWork is how many ops all turns of a bound may come to. Halved and doubled: no step time changes.
	turnsWork int
	// leastTurns is the least turns of a bound. Halved and doubled: no step time changes.
	leastTurns int
	// mostTurns is the most turns of a bound. Halved: no step time changes, work +1 %. Doubled: no step time
	// changes.
	mostTurns int
	// proofTurns is how many times as many the bound gets that is written into a plan. It changes no plan,
	// only how tight that figure is, which was not measured.
	proofTurns int
	// publicTurns is what [Bound] gets. It changes no plan either.
	publicTurns int
	// proofGap is how far above the quick bound a plan may be before the bound over intervals is worth its
	// time, and proofWork how many instants of spans that one looks at: 0.1 to 0.8 seconds of processor time
	// for the benchmark's networks. They change no plan. For PipeDream's AlexNet in the least memory twice as
	// much work tightens the bound by one percent.
	proofGap  float64
	proofWork int64
}

// mix are the kinds of moves, each up to so many sixteenths: another variant, another lead, one gap, one that
// is waited for, neighbours in time. The rest exchange two gaps.
type mix struct{ variant, lead, one, waited, neighbours int }

// retimings are the kinds of moves of positions (timing.go), each up to so many sixteenths: inputs come back
// from the host, a value is made again earlier, its inputs stay, both of these, the value stays. The rest
// retain a value from another position on.
type retimings struct{ fromHost, earlier, inputsStay, earlierAndStay, stay int }

// defaults are the params that every call takes.
func defaults() params {
	return params{
		defaultWork: 10_000_000,
		placing:     20,
		packShare:   500,
		leastPack:   500,

		longestChain:     1024,
		mostVisited:      8,
		farthestRetained: 8192,
		chainsAlone:      20_000,

		pace:       0.2,
		updates:    20,
		dualCopies: 0.01,
		copyPrices: []float64{0.2, 1, 0.03, 0.5, 0.1, 3, 0.35, 0, 0.75, 1.5},
		dearer:     0.3,
		cheaper:    0.5,
		dualScales: []float64{1, 0.6, 1.6, 0.3, 3},
		fillShares: []float64{0.5, 0, 0.25, 0.7, 0.1, 0.4, 0.9, 0.6, 0.8, 0.15, 0.3},

		slack:        0.004,
		deepTries:    2000,
		fewTries:     20,
		deepSlack:    []float64{0.01, 0.03, 0.1, 0.03, 0.06, 0.1},
		searchShare:  2,
		mix:          mix{variant: 1, lead: 2, one: 5, waited: 9, neighbours: 12},
		retimings:    retimings{fromHost: 2, earlier: 6, inputsStay: 8, earlierAndStay: 10, stay: 11},
		press:        [2]float64{4, 24},
		interference: 1024,
		polishing:    2,

		marginSteps: 32,
		nearMargins: 4,
		overrated:   32,
		firstPack:   8,
		noticeable:  4096,
		tightenOps:  4000,

		largeProblem: 4000,
		hugeProblem:  16_000,
		vastProblem:  40_000,
		rungs:        [4]int{2048, 128, 16, 3},
		rounds:       [3]int{8, 3, 2},
		mend:         [3]int64{8, 16, 32},
		pack:         100_000,
		schedules:    1200,
		coarse:       16,
		probes:       3,
		nearBound:    50,
		nearEnough:   400,
		farEnough:    20,
		luck:         50,
		quick:        3,
		tieBuffers:   20_000,

		page:           torchalloc.Granularity,
		mostSections:   1200,
		sectionRows:    16_000,
		sectionBuffers: 4000,

		weightRate:  30,
		moments:     4,
		momentsOps:  20_000,
		turnsWork:   200_000,
		leastTurns:  6,
		mostTurns:   60,
		proofTurns:  4,
		publicTurns: 200,
		proofGap:    0.045,
		proofWork:   60_000_000,
	}
}
