package timeline

// RoundingCheck tells the external tests how many blocks of the final state the rounding rule was checked on,
// and how many it missed.
func RoundingCheck(d *Device) (checked, wrong int) { return d.roundChecked, d.roundWrong }

var NewSeries, Worst, FirstAt = newSeries, worst, firstAt
