package acceptance

import (
	"fmt"
)

// The units of figures. A share is a fraction of one: 0.02 is 2 %.
const (
	unitBytes = "bytes"
	unitMS    = "ms"
	unitS     = "s"
	unitRate  = "GB/s"
	unitShare = "share"
	unitCount = "count"
)

// vocabulary has every figure that a report can hold, with its unit and the words before its value.
var vocabulary = map[string]struct{ unit, words string }{
	"available":            {unitCount, "available"},
	"to_host":              {unitRate, "copies to the host"},
	"to_device":            {unitRate, "copies to the device"},
	"plans":                {unitCount, "plans"},
	"measured":             {unitCount, "measured"},
	"verified":             {unitCount, "verified byte for byte"},
	"as_predicted":         {unitCount, "as predicted"},
	"iterations":           {unitCount, "iterations each"},
	"steps":                {unitCount, "steps"},
	"events":               {unitCount, "events"},
	"step":                 {unitMS, "a step"},
	"step_before":          {unitMS, "a step before all plans"},
	"step_after":           {unitMS, "a step after all plans"},
	"footprint":            {unitBytes, "footprint"},
	"footprint_predicted":  {unitBytes, "predicted"},
	"overhead":             {unitShare, "step time"},
	"overhead_predicted":   {unitShare, "predicted"},
	"overhead_low":         {unitShare, "95 % interval from"},
	"overhead_high":        {unitShare, "to"},
	"allocated":            {unitBytes, "allocated at the peak"},
	"allocated_predicted":  {unitBytes, "predicted"},
	"reserved":             {unitBytes, "reserved"},
	"reserved_predicted":   {unitBytes, "predicted"},
	"torch_step":           {unitMS, "torch's own way, a step"},
	"torch_peak":           {unitBytes, "at"},
	"plan_step":            {unitMS, "the plan, a step"},
	"plan_peak":            {unitBytes, "at"},
	"batch":                {unitCount, "largest batch without a plan"},
	"batch_planned":        {unitCount, "batch under a plan"},
	"sample":               {unitMS, "a sample"},
	"sample_planned":       {unitMS, "a sample under the plan"},
	"detached_after_steps": {unitCount, "detached after step"},
	"request":              {unitBytes, "request that failed"},
	"ranks":                {unitCount, "ranks"},
}

// figure makes a figure of the vocabulary.
func figure(name string, value float64) Figure {
	return Figure{Name: name, Value: value, Unit: vocabulary[name].unit}
}

// figureOf makes a figure that belongs to one of several subjects.
func figureOf(of, name string, value float64) Figure {
	return Figure{Name: name, Of: of, Value: value, Unit: vocabulary[name].unit}
}

// String returns the figure with its unit.
func (f Figure) String() string {
	switch f.Unit {
	case unitBytes:
		if f.Value >= 1<<30 {
			return fmt.Sprintf("%.2f GiB", f.Value/(1<<30))
		}
		return fmt.Sprintf("%.1f MiB", f.Value/(1<<20))
	case unitShare:
		return fmt.Sprintf("%+.2f %%", 100*f.Value)
	case unitCount:
		return fmt.Sprintf("%.0f", f.Value)
	case unitRate:
		return fmt.Sprintf("%.1f GB/s", f.Value)
	case unitS:
		return fmt.Sprintf("%.1f s", f.Value)
	}
	return fmt.Sprintf("%.4g %s", f.Value, f.Unit)
}
