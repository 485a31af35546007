// Package say is the catalogue of sentences that gmemtop shows people about a job that it watches. The
// screen, printed output and recordings share them. Programs decide by the types of package capture.
//
// The agent sends a code and values, which [Told] turns into a sentence. docs/messages.md lists all
// sentences; scripts/messages writes it from the constants, tables and comments of this package.
package say

import (
	"fmt"
	"regexp"
	"strings"
)

// Sentence is an entry of the catalogue. The comment on each names what fills its gaps, in their order.
type Sentence int

// The sentences.
const (
	// What a job waits for.
	WaitsForTorch       Sentence = iota
	WaitsForAgent                // a PID
	WaitsForInterpreter          //
	WaitsForCUDA                 //

	// Where the count of steps begins.
	StepsCounted //
	SinceAttach  //

	// How the agent got in, and which viewer has it.
	Attached         // the mechanism, a time
	AttachedLate     // the mechanism, a time, a time
	Reached          // a PID, its command
	OutOfReach       // a PID, its command
	NotReached       // a PID, its command, the error
	Beside           // a PID
	BesideOther      // a PID, a PID, a PID
	TookOver         // a PID
	AgentGone        // why
	ConnectionFailed // the error
	FromRing         // a number of steps
	NotInRing        //

	// What probes see.
	ProbesOn     // functions of libraries
	ProbesSlow   // functions
	ProbesUnseen //
	ProbesTorch  //
	ProbesDriver //
	ProbesRows   // a time

	// Output and recordings.
	OutputUnread      // the error
	DiskFull          // the folder
	DiskGivenUp       // the file
	RecordingNotBegun // the error
	RecordingStopped  // the error
	Triggered         // the trigger, why, the step
	NoLines           //

	// What one viewer tells another.
	OrderNotPassed // the error
	GoesOnWatching // a PID
	LetGo          // a PID
	NotRead        //

	// What a plan in the running training does, in a few words.
	WaitsForStep //
	Describes    //
	Plans        //
	TimesWithout //
	TimesWith    //
	MeasuresPeak //
	IsOn         //
	HasEnded     //

	// The same, as a step of a trial.
	DescribesSteps    //
	PlansMeanwhile    //
	TimesStepsWithout //
	TimesStepsWith    //
	StepsTimed        // how many steps, of how many
	MeasuresAStep     //

	// How a plan is doing. A line begins with one of the first two and goes on with all that apply.
	PlanDoes       // the plan, what it does
	UsualStep      // a number of steps, their usual time
	WatchesSizes   // how many steps, of how many
	TimesCosts     // how many steps, of how many
	LeftToWait     // how long
	TriesAgain     // which try, of how many
	PlanOn         // the plan, a number of steps
	PlanArena      // bytes, bytes
	PlanPeak       // bytes, bytes
	PlanPredicted  // bytes
	PlanHighest    // a rank
	PlanStep       // a time, a time
	PlanSlower     // a time, a time, a change, a change
	PlanDiffers    // a number, a number
	PlanAlters     //
	PlanIdentical  // a number
	PlanUnserved   // a number
	PlanStayed     // a number of tensors
	PlanLarger     // a number of steps
	PlanOverBudget // bytes
	PlanUnplanned  // why
	PlanReplanned  //
	PlanBefore     // why
	PlanRanks      // a number, a number

	// How a plan ended.
	PlanEnded       // the plan, why
	PlanFailed      // the plan, why, what happens next
	PlanNeverOn     // the plan, how many steps the training ran, what gmemtop was doing
	PlanTooLate     // a number of steps
	PlanUntimed     // a number of steps
	PlanWaits       //
	GoesOnWithout   //
	GoesOnOffloaded //

	// Why a running training cannot carry a plan out. An error begins with one of
	// the first two and goes on with one of the others.
	NotLive           //
	NothingLeaves     //
	WrongExecutor     // the plan's executor
	SavesUnknown      //
	ManyIterations    // a number
	NotRecorded       //
	NoRecordedOp      //
	StepsUnmarked     //
	NotRerunnable     // an op
	NotSaved          // a tensor
	NotMadeAgain      // a tensor, an op's number
	SavedTwice        // a number
	EventsLost        // a number, of what, why
	PoolOnlyPlaces    //
	AddressesOfPolicy // an allocator
	PoolServesWhole   // the pool's executor
	HasNoPlace        // a tensor
	FewIterations     // a number, a number
	NothingPlaced     //
	HoldsNoMemory     //
	CutsTensors       //
	MovesNoSaved      //

	// Why a plan is not worth carrying out.
	NoGain            //
	HoldsAsMuch       // bytes, bytes
	ArenaAsLarge      // bytes, bytes, why
	KeptTwice         // bytes
	MovesNothing      //
	NothingToDo       // the manager, bytes, bytes
	NoPlanForLess     //
	AboveBudget       // bytes, bytes
	OtherAboveBudget  // bytes, bytes
	LargerAboveBudget // bytes, bytes
	TooManyHoles      // bytes, bytes, what to change
	SegmentsFit       // bytes
	OtherForRoom      //
	SegmentsTake      // bytes, bytes

	// Why no plan can be made from the steps.
	Uneven           //
	UnevenOptimizer  //
	FirstDifference  // a number, a number, a number, an op, an op, why
	OtherShapes      // a number, an op, bytes, bytes
	OneKind          //
	TooFewSteps      // a number
	SavesOther       // a number, a number
	NotDescribed     // why
	StepsTooLong     // a number, a number
	NotObserved      // why
	WindowLost       //
	EndedWithin      //
	AgentKnowsNoPool //

	// Why a plan is not on, or no longer.
	TrainingEnded  //
	TurnedOff      //
	TooSlow        // a share, a share
	TooLarge       // bytes, bytes
	NotCarriedOut  //
	MayDiffer      //
	EndedBefore    //
	TrainsAlready  //
	StillOn        //
	NothingWatched //

	// How a job ended, after "ended:".
	EndDetached //
	EndDisarmed //
	EndRefused  //
	EndCode     // a number
	EndMemory   //
	Exited      //
	Vanished    //

	// Why a process makes no progress.
	Stopped  // a PID
	Debugged //
	InKernel //

	// The ways of capturing steps, and what each shows.
	ByOps        //
	OpsShow      //
	ByHistory    //
	HistoryShows //
	ByProfile    //
	ProfileShows //
	ByEvents     //
	ByProbes     //

	sentences // the number of sentences
)

// catalogue has each sentence and the key of its notice, "" if it is not a notice.
var catalogue = [sentences]struct{ key, text string }{
	WaitsForTorch: {KeyState, "for the command to load torch"},
	WaitsForAgent: {KeyState, "for process %d to load the agent"},
	WaitsForInterpreter: {KeyState, "for the interpreter: its main thread is in a long call outside " +
		"Python, or asleep"},
	WaitsForCUDA: {"", "for the process to load CUDA's libraries"},

	StepsCounted: {"", "counted from 0, like enumerate()"},
	SinceAttach:  {"", "since attach"},

	Attached: {"attached", "attached by %s; the job paused for %s"},
	AttachedLate: {"attached", "attached by %s; the job paused for %s, %s of it waiting for a processor: " +
		"this machine is overloaded"},
	Reached: {"reach", "process %d (%s) did not get gmemtop's environment: gmemtop attached after it had " +
		"loaded torch, and missed what came before"},
	OutOfReach: {"reach", "process %d (%s) runs as another user or in a container, and cannot reach " +
		"gmemtop run: to watch it, run gmemtop attach %[1]d in another terminal"},
	NotReached: {"reach", "process %d (%s) has loaded torch, but no agent reported from it and " +
		"gmemtop could not attach: %v"},
	Beside: {KeyBeside,
		"watching alongside process %d, which captures this job and keeps running when you leave"},
	BesideOther: {KeyBeside, "watching alongside process %d, which captures this job and keeps running " +
		"when you leave; it shows process %d of the job, not %d"},
	TookOver: {KeyBeside,
		"process %d, which captured this job, has exited; this viewer captures it now"},
	AgentGone:        {"agent", "the agent is gone (%s)"},
	ConnectionFailed: {"connection", "%v"},
	FromRing:         {"ring", "the process was killed before it sent its last steps; found in memory: %d"},
	NotInRing:        {"", "the process was killed before it sent them, and its memory does not hold them"},

	ProbesOn: {"", "probes are on %s"},
	ProbesSlow: {"", "each call of %s takes tens of microseconds longer, because the kernel single-steps " +
		"its first instruction"},
	ProbesUnseen: {"", "probes see allocations from now on: no figure includes earlier blocks, and their " +
		"frees are only counted"},
	ProbesTorch: {"", "sizes are as requested; there are no Python stacks, steps or tensor names"},
	ProbesDriver: {"", "most driver calls do not name a device, and count for device 0; there are no " +
		"steps, stacks or tensors"},
	ProbesRows: {"", "each row covers %s, not a training step: probes cannot see steps"},

	OutputUnread: {"output", "cannot show the command's output: %v"},
	DiskFull:     {"room", "the disk is full, and the command can no longer print: free some space in %s"},
	DiskGivenUp: {"room", "the disk is full: the beginning of %s was deleted so that the command can keep " +
		"printing"},
	RecordingNotBegun: {"recording", "%v"},
	RecordingStopped: {"recording", "recording stopped: %s; the file is readable up to here, and the job " +
		"goes on: use -o to record it to another file"},
	Triggered: {"trigger", "%s: %s in step %d"},
	NoLines: {"", "call sites have no lines of code: capturing op by op does not record them; on a GPU, " +
		"--depth history does"},

	OrderNotPassed: {KeyOrder, "the request did not reach the job: %v"},
	GoesOnWatching: {"", "process %d keeps watching"},
	LetGo:          {"", "process %d, which captured it, has detached"},
	NotRead:        {"", "this viewer fell behind, and what it missed is no longer kept"},

	WaitsForStep: {"", "waiting for a step to end"},
	Describes:    {"", "recording ops"},
	Plans:        {"", "planning"},
	TimesWithout: {"", "timing without it"},
	TimesWith:    {"", "timing with it"},
	MeasuresPeak: {"", "measuring its peak"},
	IsOn:         {"", "on"},
	HasEnded:     {"", "ended"},

	DescribesSteps:    {"", "recording steps op by op, which slows them"},
	PlansMeanwhile:    {"", "planning; the training runs as usual"},
	TimesStepsWithout: {"", "timing steps without the plan"},
	TimesStepsWith:    {"", "timing steps with the plan"},
	StepsTimed:        {"", "%d of %d steps"},
	MeasuresAStep:     {"", "measuring the peak of a step with the plan"},

	PlanDoes:       {"", "%s: %s"},
	UsualStep:      {"", "%d steps, usually %s each"},
	WatchesSizes:   {"", "looking for the largest batch: %d of %d steps seen"},
	TimesCosts:     {"", "timing copies and recomputes here: %d of %d steps"},
	LeftToWait:     {"", "about %s left"},
	TriesAgain:     {"", "try %d of %d: the steps differed"},
	PlanOn:         {"", "%s has been on for %s"},
	PlanArena:      {"", "an arena of %s for %s of tensors at the peak"},
	PlanPeak:       {"", "%s instead of %s"},
	PlanPredicted:  {"", "(predicted %s)"},
	PlanHighest:    {"", "at %s"},
	PlanStep:       {"", "step %s, of which the plan is predicted to add %s"},
	PlanSlower:     {"", "step %s instead of %s, %s (predicted %s)"},
	PlanDiffers:    {"", "%d of %d compared tensors came back different"},
	PlanAlters:     {"", "training is not bit-identical"},
	PlanIdentical:  {"", "%d tensors compared, all bit-identical"},
	PlanUnserved:   {"", "%d allocations of the last step were not in the plan"},
	PlanStayed:     {"", "%s stayed in memory but should have left"},
	PlanLarger:     {"", "%s larger than any before"},
	PlanOverBudget: {"", "up to %s over budget"},
	PlanUnplanned:  {"", "no plan covers them: %s"},
	PlanReplanned:  {"", "the plan now covers them"},
	PlanBefore:     {"", "the previous plan ended: %s"},
	PlanRanks:      {"", "on in %d of %d ranks"},

	PlanEnded:       {"", "%s ended, and gmemtop plans again: %s"},
	PlanFailed:      {"", "%s does not run: %s; %s"},
	PlanNeverOn:     {"", "%s never ran: the training ended after %s, while gmemtop was %s"},
	PlanTooLate:     {"", "train for %d steps or more"},
	PlanUntimed:     {"", "or pass --hardware, without which %d steps time what copies cost here"},
	PlanWaits:       {"", "waiting for steps to plan from"},
	GoesOnWithout:   {"", "the training goes on without it"},
	GoesOnOffloaded: {"", "the training goes on, and its saved tensors wait on the host"},

	NotLive:       {"", "this plan cannot run in a live training"},
	NothingLeaves: {"", "eager PyTorch can run no part of this plan"},
	WrongExecutor: {"", "it was made for the executor %s, but a live training needs one for torch-eager"},
	SavesUnknown: {"", "the recording does not show what autograd saves: capture steps of the live " +
		"training instead"},
	ManyIterations: {"", "it spans %d iterations"},
	NotRecorded:    {"", "it was not made from a recording"},
	NoRecordedOp:   {"", "the recording has none of its ops"},
	StepsUnmarked:  {"", "the recording does not show where its steps begin"},
	NotRerunnable: {"", "%s cannot be recomputed: no module's forward pass runs it, or its results differ " +
		"each time"},
	NotSaved:       {"", "the plan moves %s, but autograd does not save it"},
	NotMadeAgain:   {"", "nothing recomputes %s before op %d needs it"},
	SavedTwice:     {"", "two buffers are the same saved tensor, number %d"},
	EventsLost:     {"", "the recording of its allocator lost %d %s: %s"},
	PoolOnlyPlaces: {"", "this plan moves or drops tensors, and the pool only places them"},
	AddressesOfPolicy: {"", "it leaves addresses to the allocator %s: set that up before the program " +
		"starts"},
	PoolServesWhole: {"", "the pool only serves plans for the executor %s that leave every tensor whole"},
	HasNoPlace:      {"", "%s has no address"},
	FewIterations: {"", "the recording has %d whole iterations and the plan spans %d: record more " +
		"steps"},
	NothingPlaced: {"", "the plan has no address for any allocation of an iteration: record again, for " +
		"three steps"},
	HoldsNoMemory: {"", "the captured step holds no memory"},
	CutsTensors:   {"", "it cuts tensors into parts, and eager PyTorch moves a tensor as a whole"},
	MovesNoSaved:  {"", "it moves and drops nothing that autograd saves"},

	NoGain:       {"", "the plan does not lower the peak"},
	HoldsAsMuch:  {"", "a step holds %s with it and %s without; try a smaller budget or another manager"},
	ArenaAsLarge: {"", "its arena takes %s, while PyTorch's allocator needs %s%s"},
	KeptTwice: {"", "since SmartPool keeps two places for the %s that live from one step into the next; " +
		"STAlloc and exact keep one"},
	MovesNothing:  {"", "it moves nothing in this step; try another manager"},
	NothingToDo:   {"", "%s has nothing to do: a step already fits into %s, with %s at its peak"},
	NoPlanForLess: {"", "and no plan could be made for less"},
	AboveBudget: {"", "the plan needs %s, and the budget is %s: allow that much, or try another " +
		"manager"},
	OtherAboveBudget: {"", "steps run different ops, and one of those captured takes %s under the plan " +
		"for the largest, and the budget is %s: allow that much, or try another manager"},
	LargerAboveBudget: {"", "turned off: a step larger than any before takes %s with the plan, and the " +
		"budget is %s: allow that much, or make the largest batches smaller"},
	TooManyHoles: {"", "PyTorch's allocator needs %s for this plan, holes included, but has %s: %s"},
	SegmentsFit: {"", "start the training with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, with " +
		"which the plan is simulated to need %s"},
	OtherForRoom: {"", "try another manager, or train on smaller batches"},
	SegmentsTake: {"", "in a simulation of the recorded step PyTorch's allocator takes %s with " +
		"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, instead of %s"},

	Uneven:          {"", "the captured steps differ"},
	UnevenOptimizer: {"", "in what the optimizer does"},
	FirstDifference: {"", "they have %d and %d ops, and number %d is the first that differs (%s and %s)%s"},
	OtherShapes: {"", "and number %d (%s) makes %s in one and %s in the other: the batches have different " +
		"shapes, so pad or crop them all to one"},
	OneKind:     {"", "try again, or train with steps that are all alike"},
	TooFewSteps: {"", "%d was captured, but a plan needs two"},
	SavesOther: {"", "a larger step saved %d tensors, and the captured one %d: they differ in more than " +
		"shapes"},
	NotDescribed: {"", "its steps cannot be described: %s"},
	StepsTooLong: {"", "%d of them run more than the %d ops that gmemtop records at once: accumulate " +
		"gradients over fewer micro-batches, train on shorter sequences, or give LBFGS a smaller max_iter"},
	NotObserved: {"", "its allocator cannot be recorded: %s"},
	WindowLost:  {"", "the captured steps were lost in transit: try again"},
	EndedWithin: {"", "before all steps were captured"},
	AgentKnowsNoPool: {"", "the agent in the process is from an older gmemtop, which has no pool: " +
		"restart the job, or detach the viewer that put it there"},

	TrainingEnded: {"", "the training ended"},
	TurnedOff:     {"", "another viewer turned it off"},
	TooSlow:       {"", "turned off: steps take %s longer, and at most %s is allowed"},
	TooLarge:      {"", "turned off: a step takes %s with the plan, and the budget is %s"},
	NotCarriedOut: {"", "the plan does not run"},
	MayDiffer:     {"", "turned off: training might not be bit-identical (--results any allows that)"},
	EndedBefore:   {"", "it ended before the steps were described"},
	TrainsAlready: {"", "it already trains with a plan (of gmemtop run --manager, or another screen): T in " +
		"the Managers view of gmemtop attach removes that"},
	StillOn:        {"", "the plan is still on: no step has ended since you asked to remove it"},
	NothingWatched: {"", "no training is watched here: gmemtop attach PID watches one"},

	EndDetached: {"", "detached; the job is still running"},
	EndDisarmed: {"", "watching failed; the job is still running"},
	EndRefused:  {"", "watching did not begin"},
	EndCode:     {"", "exit code %v"},
	EndMemory:   {"", "out of memory"},
	Exited:      {"", "it has exited"},
	Vanished:    {"", "the process gave no reason: it was killed, or it called os._exit"},

	Stopped:  {"", "the process is stopped: kill -CONT %d resumes it"},
	Debugged: {"", "a debugger has stopped the process"},
	InKernel: {"", "the process is waiting in the kernel for a disk or a device"},

	ByOps:        {"", "op by op"},
	OpsShow:      {"", "what each op reads and writes, and its time"},
	ByHistory:    {"", "allocator history"},
	HistoryShows: {"", "segments and Python stacks; with torch.compile too"},
	ByProfile:    {"", "by the profiler"},
	ProfileShows: {"", "what each op allocates; with torch.compile too"},
	ByEvents:     {"", "allocator events"},
	ByProbes:     {"", "by probes"},
}

// Keys of the notices that each viewer makes for itself.
const (
	KeyState  = "state" // what a job waits for or does
	KeyBeside = "along" // other viewers of the job, past and present
	KeyOrder  = "order" // an order of the viewer's that never reached the job
)

// Text returns the sentence with its gaps filled.
func (s Sentence) Text(gaps ...any) string { return fmt.Sprintf(catalogue[s].text, gaps...) }

// verb matches what fmt fills in a sentence.
var verb = regexp.MustCompile(`%[-+# 0-9.]*[a-zA-Z]`)

// In reports whether a line of text has the sentence, with anything in its gaps.
func (s Sentence) In(text string) bool {
	parts := verb.Split(catalogue[s].text, -1)
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(strings.ReplaceAll(p, "%%", "%"))
	}
	return regexp.MustCompile(strings.Join(parts, ".*")).MatchString(text)
}

// Key returns the key of the sentence as a notice, "" if it is not one.
func (s Sentence) Key() string { return catalogue[s].key }
