package figure

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/steps"
)

//go:embed page.html
var page string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// HTML writes a page with the devices' usage and details under the mouse. It needs no network, and its own
// content security policy forbids any request.
func HTML(ctx context.Context, w io.Writer, devices []*timeline.Device, o Options) error {
	var figures strings.Builder
	title := ""
	for i, d := range devices {
		section, c, err := htmlSection(ctx, d, i, o)
		if err != nil {
			return err
		}
		figures.WriteString(section)
		if i == 0 {
			title = baseName(c.Stats.Source.Path)
		}
	}
	_, err := strings.NewReplacer("{{title}}", escapeXML(title), "{{css}}", pageCSS+categoryCSS(), "{{js}}",
		pageJS,
		"{{figures}}", figures.String()).WriteString(w, page)
	return err
}

func htmlSection(ctx context.Context, d *timeline.Device, index int, o Options) (string, *chart, error) {
	width, height := o.size()
	c, err := newChart(ctx, d, 800, o)
	if err != nil {
		return "", nil, err
	}
	// json.Marshal escapes angle brackets: the script cannot be closed from inside
	data, err := json.Marshal(c.hover(width, height))
	if err != nil {
		return "", nil, err
	}
	// One drawing for the light and one for the dark setting: a style sheet cannot recolour hatches and text
	// alike.
	lightSVG := strings.ReplaceAll(string(c.svg(width, height, &light)), "hatch-", fmt.Sprintf("l%d-", index))
	darkSVG := strings.ReplaceAll(string(c.svg(width, height, &dark)), "hatch-", fmt.Sprintf("d%d-", index))
	var b strings.Builder
	// the drawing opens with the title and the sentence
	fmt.Fprintf(&b, "<section aria-label=\"%s\">\n", escapeXML(c.Title))
	fmt.Fprintf(&b, "<figure class=\"chart\"><div class=\"light\">%s</div><div class=\"dark\">%s</div>"+
		"<div class=\"cursor\" hidden></div><div class=\"tip\" hidden></div><script "+
		"type=\"application/json\">%s</script></figure>\n",
		lightSVG, darkSVG, data)
	c.tables(&b)
	b.WriteString("</section>\n")
	return b.String(), c, nil
}

// hoverData is the data that the page's script needs to describe the place under the mouse.
type hoverData struct {
	Plot       [4]float64 `json:"plot"` // x, y, w, h in the drawing
	Size       [2]int     `json:"size"`
	Categories []string   `json:"categories"` // top of the stack first
	Index      []int      `json:"index"`      // of each in column.By
	Columns    []column   `json:"columns"`
	HasTime    bool       `json:"has_time"`
	Reserved   bool       `json:"reserved"`
	Base       int        `json:"base"`
	Marks      []mark     `json:"marks"`
}

func (c *chart) hover(w, h int) hoverData {
	f := c.plotFrame(float64(w), float64(h))
	d := hoverData{Plot: [4]float64{f.x, f.y, f.w, f.h}, Size: [2]int{w, h}, Columns: c.Columns,
		HasTime:  c.HasTime,
		Reserved: c.HasCache,
		Base:     map[timeline.Units]int{timeline.IEC: 1024, timeline.SI: 1000, timeline.Raw: 0}[c.units],
		Marks:    c.Marks}
	for i := len(c.Order) - 1; i >= 0; i-- {
		d.Categories, d.Index = append(d.Categories, c.Order[i].String()), append(d.Index, int(c.Order[i]))
	}
	return d
}

// categoryCSS colours the swatches in tables and in the tooltip by category.
func categoryCSS() string {
	var b strings.Builder
	rule := func(p *palette, indent string) {
		for cat := range timeline.NumCategories {
			fmt.Fprintf(&b, "%s.swatch.%s{background:%s}\n", indent, cat, hex(p.category[cat]))
		}
	}
	rule(&light, "")
	b.WriteString("@media (prefers-color-scheme: dark){\n")
	rule(&dark, "  ")
	b.WriteString("}\n")
	return b.String()
}

// tables writes the details that do not fit into the drawing.
func (c *chart) tables(b *strings.Builder) {
	total := int64(0)
	for _, r := range c.Device.Peak.ByCategory {
		total += r.Bytes
	}
	open := func(title string, heads ...string) {
		fmt.Fprintf(b, "<details open><summary>%s</summary><table><thead><tr>", title)
		for _, h := range heads {
			fmt.Fprintf(b, "<th>%s</th>", h)
		}
		b.WriteString("</tr></thead><tbody>\n")
	}
	shut := func() { b.WriteString("</tbody></table></details>\n") }
	open("Held at the peak, by category", "category", "bytes", "share", "blocks")
	for _, r := range c.Device.Peak.ByCategory {
		name := r.Name
		if r.Inferred {
			name = "~" + name
		}
		fmt.Fprintf(b, "<tr><td><i class=\"swatch %s\"></i>%s</td>%s%s<td class=n>%s</td></tr>\n",
			categoryOf(r.Name),
			escapeXML(name),
			c.sizeCell(r.Bytes), cell(report.Percent(r.Bytes, total)), report.Grouped(r.Blocks))
	}
	shut()
	open("Held at the peak, by call site", "bytes", "share", "blocks", "call site")
	for _, r := range c.Device.Peak.BySite {
		fmt.Fprintf(b, "<tr>%s%s%s<td><details><summary>%s</summary><ol reversed>", c.sizeCell(r.Bytes),
			cell(report.Percent(r.Bytes, total)),
			cell(report.Grouped(r.Blocks)), escapeXML(r.Site))
		shown, native := pythonFrames(r.Stack)
		for i := len(shown) - 1; i >= 0; i-- {
			fmt.Fprintf(b, "<li>%s</li>", escapeXML(shown[i]))
		}
		b.WriteString("</ol>")
		if native > 0 {
			fmt.Fprintf(b, "<p>without %s</p>", timeline.Counted(native, "frame")+" of C++")
		}
		b.WriteString("</details></td></tr>\n")
	}
	shut()
	if len(c.Device.Iterations) > 0 {
		open("Iterations", "it", "peak", "time", "allocated in it", "blocks", "")
		for _, it := range c.Device.Iterations {
			length := "–"
			if it.Start != nil {
				length = timeline.Duration(*it.End - *it.Start)
			}
			fmt.Fprintf(b, "<tr><td class=n>%s</td>%s%s%s%s<td>%s</td></tr>\n",
				steps.IterationNumber(it.Name), c.sizeCell(it.PeakAllocated), cell(length),
				c.sizeCell(it.Churn), cell(report.Grouped(it.Blocks)), escapeXML(it.Why))
		}
		shut()
	}
	if len(c.Stats.Losses) > 0 {
		open("Not in this trace, or worth knowing", "", "count", "what", "")
		for _, l := range c.Stats.Losses {
			fmt.Fprintf(b, "<tr><td>%s</td>%s<td>%s</td><td>%s</td></tr>\n", escapeXML(l.Severity),
				cell(report.Grouped(l.Count)),
				escapeXML(l.Name), escapeXML(l.Detail))
		}
		shut()
	}
}

// pythonFrames leaves out the native frames of a stack, of which one Python frame has dozens, and counts
// them. A stack without Python frames stays as it is.
func pythonFrames(stack []string) (kept []string, native int) {
	for _, f := range stack {
		if strings.Contains(f, ".py:") || strings.Contains(f, ".ipynb:") || strings.Contains(f, " <") {
			kept = append(kept, f)
		}
	}
	if len(kept) == 0 {
		return stack, 0
	}
	return kept, len(stack) - len(kept)
}

func cell(s string) string { return "<td class=n>" + escapeXML(s) + "</td>" }

func (c *chart) sizeCell(n int64) string {
	return fmt.Sprintf("<td class=n data-v=\"%d\">%s</td>", n, escapeXML(c.units.Bytes(n)))
}
