// Package figure draws a timeline to files: SVG, PNG and self-contained HTML of usage over time stacked by
// category with the peak's breakdown, a markdown report, folded stacks for flame graphs, and CSV and JSON
// tables of every allocation.
//
// Charts preserve what matters most in a memory chart: a column shows the maximum within it, never the mean,
// so a peak that lasts a microsecond shows at any width, and each category always has the same colour
// (torch.profiler's), with a hatch as second channel.
//
// The chart is laid out once, by [chart.draw], onto a small canvas with two implementations: SVG text and a
// rasteriser. A plotting library was measured and left out: it costs 11 MB of binary for two chart types, and
// draws lines through averages.
package figure
