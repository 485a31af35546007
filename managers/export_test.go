package managers

import "github.com/gmemtop/gmemtop/managers/plan"

// Asking returns joint as it is among all managers, but with each of those that it asks wrapped.
func Asking(wrap func(plan.Manager) plan.Manager) plan.Manager {
	asked := seeds(comparable(published()))
	for i := range asked {
		asked[i] = wrap(asked[i])
	}
	return ours(asked)
}
