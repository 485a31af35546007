package plan

// PlanJSON is a plan's file, for the test that holds its document against it.
type PlanJSON = planJSON
