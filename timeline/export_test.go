package timeline

// RoundingCheck tells the external tests on how many blocks of the final state the rounding rule was checked
// and how many it missed.
func (d *Device) RoundingCheck() (checked, wrong int) { return d.roundChecked, d.roundWrong }

func (d *Device) FindIterations() *Iterations { return d.findIterations() }

func (d *Device) FindPhases() []PhaseSpan { return d.findPhases() }

func (d *Device) SortKey(k SortKey) func(AllocID) uint64 { return d.sortKey(k) }

func (d *Device) FirstAt(a Axis, x int64) Moment { return d.firstAt(a, x) }

var CppName, NewSeries, Worst = cppName, newSeries, worst
