package timeline

import "context"

// RoundingCheck tells the external tests on how many blocks of the final state the rounding rule was checked
// and how many it missed.
func (d *Device) RoundingCheck() (checked, wrong int) { return d.roundChecked, d.roundWrong }

func (d *Device) FindIterations() *Iterations { return d.findIterations() }

func (d *Device) FindPhases() []PhaseSpan { return d.findPhases() }

func (d *Device) SortKey(k SortKey) func(AllocID) uint64 { return d.sortKey(k) }

func (d *Device) FirstAt(a Axis, x int64) Moment { return d.firstAt(a, x) }

func (d *Device) PeakWithout(ctx context.Context, cuts []Cut, scratch []int64) (int64, error) {
	return d.peakWithout(ctx, cuts, scratch)
}

func (d *Device) Life(a AllocID, bytes int64) Cut { return d.life(a, bytes) }

type Cut = cut

var BytesAt, CppName, NewSeries, Worst = bytesAt, cppName, newSeries, worst

const SiteSignatures = siteSignatures
