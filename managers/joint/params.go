package joint

import "github.com/gmemtop/gmemtop/traces/torchalloc"

// The tuning parameters of the planner.
//
// Where it is known why a value was chosen, its comment says so. Most values were set by trial, and the
// trials were not recorded. BenchmarkParams measures the effect of changing each one: 40 plans of three
// networks, 12 random problems, four without copy engines and two chains, each with a million units of
// counted work, on the simulator. A figure is the mean change of the step time, followed in brackets by those
// of the best and the worst plan; a plus is slower. Any change makes the search end elsewhere, so a few
// tenths of a percent either way mean little.

// params are the tuning parameters of the planner.
type params struct {
	// Counted work: positions, gaps and accesses looked at.

	// defaultWork is the work of a call that does not set any: a second or two. The benchmark sets its own.
	defaultWork int64
	// placing is the work counted for each step of a plan that is placed and measured. Halved: -0.05 % (-1.0
	// to +0.0 %), work -23 %. Doubled: +0.07 % (+0.0 to +1.1 %), work +51 %.
	placing int64
	// A search for places gets 1/packShare of the work. Halved: +0.06 % (-2.2 to +5.7 %), work +1 %. Doubled:
	// +0.57 % (-1.6 to +11.7 %), 1 plan fewer fits, work +15 %.
	packShare int64
	// leastPack is the least work of a search for places. The benchmark always has more. Halved and doubled:
	// no step time changes.
	leastPack int64

	// Chains of ops that are rerun. These bounds are for longer iterations than the benchmark has.

	// longestChain bounds the ops of one rerun. Halved and doubled: no step time changes.
	longestChain int
	// mostVisited bounds the ops looked at for all reruns, successful or not, as a multiple of the
	// iteration's ops. Halved: no step time changes. Doubled: no step time changes, work +1 %.
	mostVisited int
	// farthestRetained bounds the positions over which a chain's result is retained; beyond that it is
	// recomputed. Halved and doubled: no step time changes.
	farthestRetained int
	// chainsAlone bounds the gaps whose chains are looked at individually before planning. The benchmark has
	// fewer. Halved and doubled: no step time changes.
	chainsAlone int

	// Prices.

	// pace is how far prices move towards what a schedule has shown. If they moved all the way, choices would
	// oscillate. Halved and doubled: no step time changes.
	pace float64
	// updates is how often prices are updated. Halved: -0.03 % (-0.4 to +0.0 %). Doubled: -0.03 % (-0.4 to
	// +0.0 %).
	updates int
	// dualCopies is the share of its own time that is added to a copy's dual price, so that free copies can
	// be told apart. Halved and doubled: no step time changes.
	dualCopies float64
	// copyPrices are the prices of copying to sweep, the more promising first. Other grids were not measured.
	copyPrices []float64
	// dearer is added to the price of copying that worked best, to try a higher one. Halved and doubled: no
	// step time changes.
	dearer float64
	// cheaper multiplies that price, to try a lower one. Halved and doubled: no step time changes.
	cheaper float64
	// dualScales are the factors of dual prices to sweep. Other grids were not measured.
	dualScales []float64
	// fillShares are the shares of cheap reruns to keep out of filled copy engines. Other grids were not
	// measured.
	fillShares []float64

	// Local search.

	// slack is how much slower than the best a move may be at first; it falls to zero by halfway. Halved:
	// +0.09 % (-2.1 to +5.7 %), work +1 %. Doubled: +0.03 % (-3.4 to +5.4 %), work +6 %.
	slack float64
	// hot is the heat of each hot search from plans, as a share of the step time. Set by the exact times of
	// small problems.
	hot []float64
	// cool is the heat of each cool search, as a multiple of what an absence costs on average. With the heat
	// of hot searches, ten times the work left ResNet-50 at 23 % of its memory 8 % above the bound; these
	// bring it to 4.3 %. Six of them instead of nine left it 6.0 % above.
	cool []float64
	// coolings is how often all cool searches are made at most: once, and again while the best plan is more
	// than 1/farEnough above the bound.
	coolings int
	// deepSchedules is the least number of schedules of a cool search by default.
	deepSchedules int64
	// deepPack multiplies the work of the search for places after a cool search. Without it, a plan for
	// PipeDream's ResNet-50 at 21 % of its memory, with 1 % of the budget to spare in live bytes, ended 5 %
	// above the budget; with it, within.
	deepPack int64
	// A start of a cool search may be slower than the best plan of all by 1/behind.
	behind int64
	// Cool searches end once the best plan is within 1/cooled of the bound. With nine searches for each plan,
	// ResNet-50 at 77 % of its memory took four times the processor time for a gain of 0.1 %.
	cooled int64
	// starts is how many plans of a view are kept as starts of cool searches. Two whose times differ by at
	// most 1/alike are mostly alike; only the better one is kept.
	starts int
	alike  int64
	// In a search from plans, one move in borrowOften takes over a stretch of one of the best plans, of which
	// lenders are kept. borrowOften doubled: +0.12 % (-1.6 to +2.3 %), measured as borrow.go says.
	borrowOften, lenders int
	// A stretch grows by half with probability 1-1/stretches, again and again.
	stretches int
	// At the end every try is measured, in a search from each of the tryStarts best plans of a view. tryWork
	// is the work counted for each step of such a try, about what it takes in time. Of 19 small problems
	// whose optimum joint missed, one start finds 7, three find 10, and with more work still 10.
	tryStarts int
	tryWork   int64
	// Hot searches from plans are repeated only if a rung's work allows deepTries schedules. There is no
	// search from plans at all if it does not allow fewTries.
	deepTries, fewTries int64
	// Prices get 1/searchShare of the work; moves get the rest. Halved: +0.18 % (-6.9 to +15.1 %), work +8 %.
	// Doubled: +0.76 % (-12.5 to +17.6 %), work +6 %.
	searchShare int64
	// mix sets the proportions of the moves that change choices, retimings of those that change positions.
	// Other mixes were not measured.
	mix       mix
	retimings retimings
	// If positions may change, one move in retimeOften changes positions instead of choices. Halved and
	// doubled: no step time changes.
	retimeOften int
	// Of the moves that change a swapped gap's positions, one in backOften changes when its value is back.
	// Every other search leaves these moves out. Other values were not measured.
	backOften int
	// leads is how many leads there are to choose from, in equal steps from 0 to 1, each with and without
	// hastening. Halved: -0.21 % (-6.5 to +1.4 %), work +1 %. Doubled: +0.03 % (-0.6 to +2.3 %), work +1 %.
	leads int
	// A move of neighbours takes from two to one more than fewNeighbours gaps, or two, four or more times as
	// many: neighbourSizes counts the sizes. Halved: -0.21 % (-3.7 to +0.6 %), work -3 %, and +0.01 % (-6.5
	// to +7.3 %), work +4 %. Doubled: +0.23 % (-1.7 to +6.9 %) and -0.02 % (-3.1 to +4.7 %), work -3 %.
	fewNeighbours, neighbourSizes int
	// exchangeTries is how often a second gap is drawn for an exchange until one of the two is kept. Some
	// problems keep all gaps or none, where drawing on is in vain. Halved: +0.04 % (-3.7 to +6.9 %), work
	// +1 %. Doubled: +0.18 % (-0.4 to +6.9 %).
	exchangeTries int
	// drawTries is how often a gap that an op waits for, or another choice, is drawn until one fits.
	// Halved: +0.46 % (-1.4 to +6.9 %), work +7 %. Doubled: -0.20 % (-6.5 to +1.3 %), work +3 %.
	drawTries int
	// The next four are for moves of positions. Halved and doubled: no step time changes.

	// A value that can be recomputed only in some plans stays once in stayOften times, and is recomputed
	// earlier otherwise.
	stayOften int
	// A value that stays leaves after a chain, except once in leaveElsewhere times.
	leaveElsewhere int
	// A value is retained from a chain on, except once in retainElsewhere times.
	retainElsewhere int
	// A value that is recomputed earlier is recomputed anywhere once in earlierElsewhere times, and where
	// compute waits as often.
	earlierElsewhere int
	// press is the price of a byte above its limit in a search from plans, as a multiple of the time to copy
	// it out and in: at the start, and at the end. Other prices were not measured.
	press [2]float64
	// If addresses cost more than 1/interference of the time, choices are tried on the evaluator. Halved and
	// doubled: no step time changes.
	interference int64
	// Trying choices on the evaluator gets 1/polishing of a rung's work. Halved: -0.05 % (-1.0 to +0.0 %),
	// work +10 %. Doubled: +0.07 % (+0.0 to +1.1 %), work -3 %.
	polishing int64

	// Places.

	// The first cut of the limits is 1/marginSteps of the memory that varies. Halved: +0.07 %
	// (+0.0 to +1.7 %), work -1 %. Doubled: +0.06 % (-0.8 to +3.8 %), work +1 %.
	marginSteps int64
	// Two margins that differ by less than 1/nearMargins of that step count as equal. Halved: no step time
	// changes. Doubled: no step time changes, work -2 %.
	nearMargins int64
	// A schedule may overestimate a plan's time by 1/overrated. A candidate that is slower than the incumbent
	// by more is hopeless. Halved: +0.13 % (-3.8 to +8.5 %), work +3 %. Doubled: -0.36 % (-12.9 to +0.5 %).
	overrated int64
	// The first round gets 1/firstPack of the work of a search for places, because that search is mostly in
	// vain. Halved and doubled: no step time changes.
	firstPack int64
	// Addresses that cost less than 1/noticeable of the time are said to cost nothing. Halved and doubled: no
	// step time changes.
	noticeable int64
	// While no margin has been enough, it is doubled, and 1/missShare of what the plan is too large by is
	// added. Halved: no step time changes. Doubled: no step time changes, work -1 %.
	missShare int64
	// In the last round, a plan that leaves no more than leftOver steps unused is good enough if only a
	// greedy pass is affordable. Halved and doubled: no step time changes.
	leftOver int64
	// tightenOps is the maximum number of ops for which limits are lowered position by position. The
	// benchmark has fewer. Halved and doubled: no step time changes.
	tightenOps int

	// The ladder of limits. A problem is large, huge or vast if it has more than half as many buffers as the
	// number says, or large if it has more ops and buffers together.

	// largeProblem is the size from which placing a plan takes most of the time. Halved: no step time
	// changes. Doubled: no step time changes, work +4 %.
	largeProblem int
	// hugeProblem is beyond the benchmark. Halved and doubled: no step time changes.
	hugeProblem int
	// vastProblem is beyond the benchmark. Halved and doubled: no step time changes.
	vastProblem int
	// rungs is the number of rungs for each size of problem. A hundred rungs for every call took ten seconds
	// for a budget, and were still too far apart. Halved: +0.26 % (-5.3 to +5.7 %), work +8 %. Doubled:
	// +0.44 % (-4.4 to +9.8 %), work +4 %.
	rungs [4]int
	// The work of a call is divided by the number of rungs that it visits: about the logarithm of all, less
	// fewerVisited that turn out to have equal results, but at least leastVisited. Halved: no step time
	// changes, and -0.14 % (-3.7 to +1.2 %), work +1 %. Doubled: +1.01 % (-0.8 to +24.3 %), work -10 %, and
	// -0.09 % (-3.6 to +5.7 %), work +9 %.
	leastVisited, fewerVisited int
	// rounds is how often one limit is planned for at most, by size. Halved: +0.12 % (-0.6 to +4.8 %), work
	// -5 %. Doubled: no step time changes, work +7 %.
	rounds [3]int
	// The repair of choices gets 1/mend of a rung's work, by size. Halved: -0.22 % (-13.9 to +9.8 %),
	// work +7 %. Doubled: +0.62 % (-0.9 to +9.8 %), work +2 %.
	mend [3]int64
	// pack is the most work of a search for places. The benchmark always has less. Halved and doubled: no
	// step time changes.
	pack int64
	// schedules is the minimum number of schedules for a view of a rung where each takes long: half for
	// prices, of which some two hundred are tried. With 200 in all, step times on a recording of 6,000 ops
	// and 1,200 buffers were up to a third longer. The benchmark has no such problem. Halved and doubled: no
	// step time changes.
	schedules int64
	// A rung that lies at least 1/coarse of all rungs from its neighbours is coarse, and gets probes. Halved:
	// +0.17 % (+0.0 to +5.4 %), work -12 %. Doubled: -0.03 % (-1.0 to +0.0 %), work +10 %.
	coarse int
	// probes is how many further limits are planned for at a coarse rung. Halved: +0.58 % (+0.0 to +11.2 %),
	// work -36 %. Doubled: -0.09 % (-3.6 to +0.4 %), work +47 %.
	probes int
	// A plan within 1/nearBound of the bound gets no probe. Halved: +0.01 % (+0.0 to +0.5 %), work -4 %.
	// Doubled: no step time changes, work +3 %.
	nearBound int64
	// If planning takes seconds, no further quick manager is asked once a plan is within 1/nearEnough of the
	// bound. Within 1/farEnough, none of the others is asked, and there is no search from plans.
	nearEnough, farEnough int64
	// The plan of another manager gets places anyway if its decisions are slower than the best known by no
	// more than 1/luck: a slightly slower plan may be a good start for a search.
	luck int64
	// quick is how many of the other managers count as quick.
	quick int
	// tieBuffers is the maximum number of buffers for which a smaller footprint breaks ties. With more, all
	// other managers are asked until the bound is met. The benchmark has fewer. Halved and doubled: no step
	// time changes.
	tieBuffers int

	// Sections.

	// page is the granularity at which virtual memory can present separate sections to an op as one range:
	// CUDA's. Halved: no step time changes. Doubled: -0.30 % (-8.7 to +0.0 %), work -1 %.
	page int64
	// mostSections bounds the sections of all buffers. Beyond it, finer sections cost the search more than
	// they gain. Halved: -0.28 % (-8.7 to +0.5 %). Doubled: no step time changes, work +1 %.
	mostSections int64
	// sectionRows bounds the sum of ops and buffers of a problem in sections. Halved and doubled: no step
	// time changes.
	sectionRows int
	// sectionBuffers bounds the buffers of a problem in sections. Halved and doubled: no step time changes.
	sectionBuffers int

	// The bound.

	// weightRate is the initial rate of the multiplicative updates; it falls with the square root of the
	// turn. Halved: no step time changes, work +1 %. Doubled: no step time changes, work -1 %.
	weightRate float64
	// moments is how many moments are looked at: the iteration is cut into as many parts, and the fullest
	// moment of each is taken. Halved and doubled: no step time changes.
	moments int
	// With more ops than momentsOps, only one moment is looked at. The benchmark has fewer. Halved and
	// doubled: no step time changes.
	momentsOps int
	// turnsWork bounds the ops that all turns of a bound look at. Halved and doubled: no step time changes.
	turnsWork int
	// leastTurns is the minimum number of turns of a bound. Halved and doubled: no step time changes.
	leastTurns int
	// mostTurns is the maximum number of turns of a bound. Halved: no step time changes, work +1 %. Doubled:
	// no step time changes.
	mostTurns int
	// proofTurns multiplies the turns of the bound that is written into a plan. It changes no plan, only how
	// tight that figure is, which was not measured.
	proofTurns int
	// publicTurns is the number of turns of [Bound]. It changes no plan either.
	publicTurns int
	// proofGap is how far above the quick bound a plan must be before the bound over intervals is worth
	// computing. proofWork is how many instants of spans that bound looks at: 0.1 to 0.8 seconds of processor
	// time for the benchmark's networks. They change no plan. For PipeDream's AlexNet in the least memory,
	// twice as much work tightens the bound by one percent.
	// proofGap halved: no bound changes. Doubled: -0.13 % (-1.8 to +0.0 %), as for the figures of proving.
	// [Bound] aims for the time of a plan that takes 1/proofAim longer than the quick bound. proofAim halved:
	// -0.01 % (-0.1 to +0.2 %). Doubled: -0.48 % (-6.3 to +0.0 %).
	proofGap  float64
	proofWork int64
	proofAim  int64
	proof     proving
}

// proving are the tuning parameters of the bound over intervals (intervals.go). They change no plan, only the
// bound beside it, and how near its bound a plan is said to be.
//
// BenchmarkProof measures the effect of changing each one on that bound, for two networks and 12 small
// problems at a quarter of the way from the least memory to the peak, with 3 million instants of work.
// Figures are those of the bound, as for step times above, but here a plus is better. The values were set
// by trial. Where no bound changes, these problems do not show what the value is for.
type proving struct {
	// The root gets at most 1/rootPart of the work, and each branch at most 1/branchPart. Halved: +0.05 %
	// (+0.0 to +0.6 %) and +0.03 % (+0.0 to +0.2 %). Doubled: -0.05 % (-0.5 to +0.0 %) and -0.05 % (-0.4 to
	// +0.0 %).
	rootPart, branchPart int64
	// Another level of the root is tried only if enough work remains for fewestTurns turns. Halved and
	// doubled: no bound changes.
	fewestTurns int64
	// The first level cuts the iteration into fewestParts parts; each further level has refined times as
	// many. fewestParts halved: +0.01 % (+0.0 to +0.1 %). Doubled: +0.08 % (-0.5 to +1.5 %). refined doubled:
	// +0.11 % (+0.0 to +1.5 %). It must be above 1.
	fewestParts, refined int
	// The first step covers the share firstStep of the remaining gap; no step covers more than largestStep.
	// firstStep halved: -0.05 % (-0.4 to +0.0 %). Doubled: -0.01 % (-0.2 to +0.2 %). largestStep halved and
	// doubled: no bound changes.
	firstStep, largestStep float64
	// The step is multiplied by longer when the average points upwards, and by shorter after fallow turns
	// without a gain. longer halved, so that steps only shrink: -1.06 % (-7.4 to +0.0 %). Doubled: -0.02 %
	// (-0.2 to +0.2 %). shorter halved: -0.03 % (-0.3 to +0.1 %). Doubled, so that steps only grow: -0.05 %
	// (-0.7 to +0.8 %). fallow halved: -0.00 % (-0.2 to +0.2 %). Doubled: -0.01 % (-0.3 to +0.2 %).
	longer, shorter float64
	fallow          int
	// The target lies above the best value by at least the share above of it. Halved and doubled: no bound
	// changes.
	above float64
	// newestShare bounds the weight of the newest subgradient in the average. With more, the average
	// forgets; with less, it follows too late. Halved: -0.01 % (-0.1 to +0.1 %). Doubled: -0.02 % (-0.3 to
	// +0.1 %). Every review turns the bound is halved, down to leastShare, if steps are then shorter than the
	// first by the factor settled. leastShare halved: no bound changes. Doubled: +0.01 % (-0.0 to +0.1 %).
	newestShare, leastShare float64
	// The weight is at least 1/leastMixed of its bound. Halved: +0.06 % (-0.0 to +0.5 %). Doubled: -0.12 %
	// (-0.7 to +0.0 %).
	leastMixed float64
	// review halved: -0.03 % (-0.2 to +0.0 %). Doubled: -0.04 % (-0.5 to +0.0 %). settled halved: -0.00 %
	// (-0.1 to +0.2 %). Doubled: -0.01 % (-0.2 to +0.1 %).
	review  int
	settled float64
	// The ascent stops if the bound grows by less than the share worthwhile within patience turns. Leaving a
	// ridge takes some hundreds. worthwhile halved and doubled: no bound changes. patience halved: +0.01 %
	// (-0.0 to +0.2 %). Doubled: no bound changes.
	worthwhile float64
	patience   int
	// dearest is a price of memory at one instant that drives out everything that can leave. A unit of memory
	// is what a copy moves in a nanosecond. Halved: +0.01 % (-0.0 to +0.2 %). Doubled: -0.01 % (-0.1 to
	// +0.0 %). bisections is how often the range from 0 to dearest is halved. Halved: +0.00 % (-0.1 to
	// +0.1 %). Doubled: -0.03 % (-0.2 to +0.0 %).
	dearest    float64
	bisections int
	// halvings bounds how often the positions of a span are bisected. One more doubles the number of chains
	// to compute. Halved and doubled: no bound changes.
	halvings int
	// sharing is the number of instants counted for an op whose time is shared: finding its time takes a
	// binary search. Halved and doubled: no bound changes.
	sharing int64
	// longestMaking bounds the ops of a chain. For a longer one only the producers count. Halved and doubled:
	// no bound changes.
	longestMaking int
}

// sixteenths is what the thresholds of mix and retimings are parts of.
const sixteenths = 16

// mix are cumulative thresholds, in sixteenths, for the kinds of moves: another variant, another lead, one
// gap, one gap that something waits for, neighbours in time. The rest exchange two gaps.
type mix struct{ variant, lead, one, waited, neighbours int }

// retimings are cumulative thresholds, in sixteenths, for the kinds of moves of positions (retime.go): inputs
// come back from the host, a value is recomputed earlier, its inputs stay, both of these, the value stays.
// The rest retain a value starting at another position.
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

		slack:         0.004,
		deepTries:     2000,
		fewTries:      20,
		hot:           []float64{0.01, 0.03, 0.1, 0.03, 0.06, 0.1},
		cool:          []float64{1, 1, 1, 3, 0.3, 2, 0.6, 1, 1},
		coolings:      3,
		deepSchedules: 4000,
		deepPack:      10,
		behind:        10,
		cooled:        200,
		starts:        3,
		borrowOften:   5,
		lenders:       8,
		stretches:     5,
		alike:         1000,
		tryStarts:     3,
		tryWork:       3,
		searchShare:   2,
		mix:           mix{variant: 1, lead: 2, one: 5, waited: 9, neighbours: 12},
		retimings:     retimings{fromHost: 2, earlier: 6, inputsStay: 8, earlierAndStay: 10, stay: 11},
		retimeOften:   3,
		backOften:     4,
		leads:         5,

		fewNeighbours: 8, neighbourSizes: 4,
		exchangeTries:  20,
		drawTries:      8,
		stayOften:      3,
		leaveElsewhere: 3, retainElsewhere: 4,
		earlierElsewhere: 4,

		press:        [2]float64{4, 24},
		interference: 1024,
		polishing:    2,

		marginSteps: 32,
		nearMargins: 4,
		overrated:   32,
		firstPack:   8,
		noticeable:  4096,
		missShare:   2,
		leftOver:    2,
		tightenOps:  4000,

		largeProblem: 4000,
		hugeProblem:  16_000,
		vastProblem:  40_000,
		rungs:        [4]int{2048, 128, 16, 3},
		leastVisited: 6,
		fewerVisited: 2,
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
		proofAim:    5,
		proof: proving{
			rootPart: 2, branchPart: 30,
			fewestTurns: 100,
			fewestParts: 24, refined: 3,
			firstStep: 0.1, largestStep: 2,
			longer: 1.1, shorter: 0.66, fallow: 20,
			above:       1e-3,
			newestShare: 0.2, leastShare: 1e-4, leastMixed: 10, review: 100, settled: 5,
			worthwhile: 1e-4, patience: 500,
			dearest: 3, bisections: 30,
			halvings:      5,
			sharing:       16,
			longestMaking: 400,
		},
	}
}

// proofOf is the work for the bound over intervals: less if the caller asks for less work. Work 0 means the
// default.
func (s *params) proofOf(work int64) int64 {
	if work > 0 {
		return min(s.proofWork, work*s.proofWork/s.defaultWork)
	}
	return s.proofWork
}

// turns returns the number of weight updates for a bound over the given number of ops.
func (s *params) turns(ops int) int {
	return max(s.leastTurns, min(s.mostTurns, s.turnsWork/(ops+1)))
}
