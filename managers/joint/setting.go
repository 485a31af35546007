package joint

// setting is what a candidate asks for.
type setting struct {
	m      *model
	choice []choice // of each gap
	way    []uint8  // the variant of each op
	dur    []int64  // the time of each op with its variant
	work   []int64
	load   []int64 // bytes alive during each op with its variant when everything is kept
	ways   int     // how often a variant was changed
	lead   float64 // copies back begin this share of their own time earlier than they must
	hasten bool    // where memory lets only some copies back begin in time, the first needed do
	timing *timing // nil if values leave at once, return when needed, and chains retain what memory allows
}

// setWay sets the variant of op i.
func (set *setting) setWay(i int, way uint8) {
	if set.way[i] == way {
		return
	}
	set.way[i] = way
	set.dur[i], set.work[i] = set.m.variantCost(i, int(way))
	set.load[i] = set.m.load[i] + set.work[i] - set.m.work[i]
	set.ways++
}
