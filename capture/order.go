package capture

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
)

// A viewer gives orders, and the source answers each under its number. Programs decide by answers; a [Notice]
// is for people and decides nothing.
//
//	         ┌─────────── refused
//	order ───┤
//	         └─ accepted ─┬─ refused
//	                      └─ done ───── ended (of a plan alone)
//
// An order is accepted when the source has received it, and done when its result has arrived: the window is
// complete, or the plan runs from the next step on. A plan that has begun ends once.

// OrderID names an order. It is random, so that several viewers of one process never share one.
type OrderID int64

// NewOrderID returns a random number for an order.
func NewOrderID() OrderID { return OrderID(rand.Int64N(1<<62) + 1) }

// Action is what an order asks for.
type Action string

// The actions.
const (
	// Describe captures the next Steps steps as one window, at the depth How, or at the depth that Depth last
	// set if How is empty.
	Describe Action = "describe"
	// Every captures one step in Steps as a window; 0 ends that.
	Every Action = "every"
	// Depth sets the depth How at which windows are captured from now on.
	Depth Action = "depth"
	// Carry carries out Plan from the next step on and ends the previous plan. Without a Plan it only ends
	// the previous one.
	Carry Action = "carry"
	// Keep makes saved tensors stay on the device while no plan is carried out, and ends the current plan. A
	// command may have been started so that saved tensors wait on the host until there is a plan.
	Keep Action = "keep"
)

// Order asks a source for more than steps. JSON is its form on the wire.
type Order struct {
	// ID is the number of the answers; 0 asks for none.
	ID    OrderID `json:"id,omitempty"`
	Do    Action  `json:"do"`
	Steps int     `json:"steps,omitempty"`
	// From is the index of the first step that Describe captures, 0 for the next one. If that step has begun
	// already, the next one is the first.
	From int64  `json:"from,omitempty"`
	How  string `json:"how,omitempty"`
	// Saves asks for an op gmemtop::save for each tensor that autograd saves and an op gmemtop::load for each
	// time it needs one: plans are made from these.
	Saves bool `json:"saves,omitempty"`
	// Library is the path of package pytorch/pool's library, which records windows [HowEvents].
	Library string `json:"library,omitempty"`
	// Number is the plan's number in the steps that run under it; see [Carried]. An order without a plan ends
	// only the plan of that number, if it is not 0.
	Number int64 `json:"number,omitempty"`
	// Plan is in the form of package replay/live.
	Plan json.RawMessage `json:"plan,omitempty"`
	// Stays keeps the plan on when the viewer that ordered it has gone. Otherwise it ends then, however the
	// viewer went.
	Stays bool `json:"stays,omitempty"`
}

// AnswerState is how far an order has come.
type AnswerState string

// The states of an order.
const (
	OrderAccepted AnswerState = "accepted"
	OrderRefused  AnswerState = "refused"
	OrderDone     AnswerState = "done"
	OrderEnded    AnswerState = "ended"
)

// Reason says why an order was refused, or why a plan ended.
type Reason string

// The reasons.
const (
	// ReasonUnknown means that the source does not know the order.
	ReasonUnknown Reason = "unknown_order"
	// ReasonUnreachable means that a viewer could not pass the order on.
	ReasonUnreachable Reason = "unreachable"
	// ReasonSuperseded means that a newer order took its place before it was begun.
	ReasonSuperseded Reason = "superseded"
	// ReasonNotCaptured means that the steps cannot be captured at the requested depth.
	ReasonNotCaptured Reason = "not_captured"
	// ReasonSavesUnseen means that the steps were captured, but not what autograd saved.
	ReasonSavesUnseen Reason = "saves_unseen"
	// ReasonNotBegun means that the plan cannot be carried out.
	ReasonNotBegun Reason = "not_begun"
	// ReasonGivenUp means that the plan no longer fits the steps.
	ReasonGivenUp Reason = "given_up"
	// ReasonDiffers means that a tensor that came back under the plan was not identical to the bit.
	ReasonDiffers Reason = "differs"
	// ReasonLarger comes with OrderDone, and means that a step saved larger tensors than the plan has.
	ReasonLarger Reason = "larger"
	// ReasonTakenAway means that an order ended the plan, or that another plan took its place.
	ReasonTakenAway Reason = "taken_away"
)

// Answer says how far an order has come.
type Answer struct {
	Order  OrderID     `json:"order"`
	State  AnswerState `json:"state"`
	Reason Reason      `json:"reason,omitempty"`
	// Text is the reason in words, for people.
	Text string `json:"text,omitempty"`
	// Sizes are the most bytes that each saved tensor of a step had under a plan, in the order of saving, -1
	// for one that is not compared, and Larger how many steps had a larger one than any before; see
	// ReasonLarger.
	Sizes  []int64 `json:"sizes,omitempty"`
	Larger int64   `json:"larger,omitempty"`
}

// ErrNoOrders is wrapped by errors of sources that do not take an order of that kind.
var ErrNoOrders = errors.New("what is watched takes no such orders")
