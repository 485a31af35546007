package timeline

// RoundingCheck tells the external tests on how many blocks of the final state the rounding rule was checked
// and how many it missed.
func RoundingCheck(d *Device) (checked, wrong int) { return d.roundChecked, d.roundWrong }

var NewSeries, Worst, FirstAt = newSeries, worst, (*Device).firstAt
