package main

import (
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// pools reports whether this is the name of a manager that only chooses addresses.
func pools(name string) bool {
	list, err := managers.Select(name)
	return err == nil && len(list) == 1 && list[0].Info().Family == plan.Pooling
}

// apart takes the managers that only choose addresses out of a list, where they were named: they are not
// carried out unasked.
func apart(list []plan.Manager, names string) (pooling, others []plan.Manager) {
	if names == "" || names == "all" {
		return nil, list
	}
	for _, m := range list {
		if m.Info().Family == plan.Pooling {
			pooling = append(pooling, m)
		} else {
			others = append(others, m)
		}
	}
	return pooling, others
}
