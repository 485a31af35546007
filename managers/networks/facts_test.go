package networks

import "github.com/gmemtop/gmemtop/managers/plan"

// Facts are figures of a network that others have published too.
type Facts struct {
	// Parameters counts trained elements; a tied weight counts once.
	Parameters int64
	// MACs are the multiply-accumulates of convolutions, linear layers and attention in one sample's forward
	// pass.
	MACs int64
}

// Facts counts the network's parameters and multiply-accumulates.
func (n Network) Facts(o Options) (Facts, error) {
	t, err := n.run(1, plan.Hardware{FlopsPerSecond: 1e12, BytesPerSecond: 1e12}, o)
	if err != nil {
		return Facts{}, err
	}
	f := Facts{MACs: int64(t.macs)}
	for i := range t.params {
		f.Parameters += t.p.Buffers[t.params[i].buf].Size / elemSize
	}
	return f, nil
}
