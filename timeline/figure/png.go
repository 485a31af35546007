package figure

import (
	"context"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"

	"github.com/gmemtop/gmemtop/timeline"
)

// PNG draws the usage of a device, or what is allocated at o.At, as a PNG image with two pixels per CSS
// pixel.
func PNG(ctx context.Context, w io.Writer, d *timeline.Device, o Options) error {
	width, height := o.size()
	var f drawing
	var err error
	if o.At.IsZero() {
		f, err = newChart(ctx, d, width, o)
	} else {
		var m *moment
		if m, err = newMoment(ctx, d, o); err == nil {
			f, height = m, m.height
		}
	}
	if err != nil {
		return err
	}
	img, err := drawPixels(f, width, height, 2, o.palette())
	if err != nil {
		return err
	}
	return png.Encode(w, img)
}

func drawPixels(c drawing, width, height int, scale float64, p *palette) (image.Image, error) {
	f, err := loadFonts()
	if err != nil {
		return nil, err
	}
	r := &raster{img: image.NewRGBA(image.Rect(0, 0, int(float64(width)*scale), int(float64(height)*scale))),
		scale: scale,
		p:     p, fonts: f,
		faces: map[faceKey]font.Face{}}
	c.draw(r, width, height, p)
	return r.img, nil
}

type fonts struct{ regular, bold *opentype.Font }

var loadFonts = sync.OnceValues(func() (fonts, error) {
	regular, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return fonts{}, err
	}
	bold, err := opentype.Parse(gobold.TTF)
	return fonts{regular, bold}, err
})

type faceKey struct {
	size float64
	bold bool
}

// raster draws onto pixels with anti-aliased polygons and the Go fonts.
type raster struct {
	img   *image.RGBA
	scale float64
	p     *palette
	fonts fonts
	faces map[faceKey]font.Face
	vec   vector.Rasterizer
}

func (r *raster) area(points []point, c timeline.Category) {
	h := hatch{r.p.category[c], blend(r.p.category[c], r.p.paper), hatches[c].angle,
		int(float64(hatches[c].spacing) * r.scale)}
	if h.spacing == 0 {
		r.polygon(points, image.NewUniform(h.ground))
		return
	}
	r.polygon(points, h)
}

// polygon fills a polygon with src, within the polygon's own bounds: the rasteriser's cost grows with the
// area it is given.
func (r *raster) polygon(points []point, src image.Image) {
	if len(points) < 3 {
		return
	}
	minX, minY, maxX, maxY := points[0].x, points[0].y, points[0].x, points[0].y
	for _, p := range points {
		minX, minY, maxX, maxY = min(minX, p.x), min(minY, p.y), max(maxX, p.x), max(maxY, p.y)
	}
	b := image.Rect(int(minX*r.scale)-1, int(minY*r.scale)-1, int(maxX*r.scale)+2,
		int(maxY*r.scale)+2).Intersect(r.img.Bounds())
	if b.Empty() {
		return
	}
	r.vec.Reset(b.Dx(), b.Dy())
	for i, p := range points {
		x, y := float32(p.x*r.scale-float64(b.Min.X)), float32(p.y*r.scale-float64(b.Min.Y))
		if i == 0 {
			r.vec.MoveTo(x, y)
		} else {
			r.vec.LineTo(x, y)
		}
	}
	r.vec.ClosePath()
	if h, ok := src.(hatch); ok {
		r.mask(b, h)
		return
	}
	r.vec.Draw(r.img, b, src, image.Point{})
}

// mask draws a hatch through the rasteriser's coverage; the rasteriser itself takes seconds for images that
// are not uniform.
func (r *raster) mask(b image.Rectangle, h hatch) {
	coverage := image.NewAlpha(image.Rect(0, 0, b.Dx(), b.Dy()))
	r.vec.DrawOp = draw.Src
	r.vec.Draw(coverage, coverage.Bounds(), image.Opaque, image.Point{})
	r.vec.DrawOp = draw.Over
	for y := range b.Dy() {
		for x := range b.Dx() {
			a := uint32(coverage.Pix[y*coverage.Stride+x])
			if a == 0 {
				continue
			}
			c := h.at(b.Min.X+x, b.Min.Y+y)
			px := r.img.Pix[r.img.PixOffset(b.Min.X+x, b.Min.Y+y):]
			px[0], px[1], px[2] = over(px[0], c.R, a), over(px[1], c.G, a), over(px[2], c.B, a)
		}
	}
}

// over mixes a/255 of c into d.
func over(d, c uint8, a uint32) uint8 { return uint8((uint32(d)*(255-a) + uint32(c)*a + 127) / 255) }

func (r *raster) fill(x, y, w, h float64, c color.RGBA) {
	at := func(v float64) int { return int(math.Round(v * r.scale)) }
	draw.Draw(r.img, image.Rect(at(x), at(y), at(x+w), at(y+h)), image.NewUniform(c), image.Point{}, draw.Src)
}

// line draws each stretch as a thin rectangle along it.
func (r *raster) line(points []point, c color.RGBA, width float64, dashed bool) {
	src := image.NewUniform(c)
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		length := math.Hypot(b.x-a.x, b.y-a.y)
		if length == 0 {
			continue
		}
		dx, dy := (b.x-a.x)/length, (b.y-a.y)/length
		piece, gap := length, 0.0
		if dashed {
			piece, gap = 2, 3
		}
		for at := 0.0; at < length; at += piece + gap {
			end := math.Min(at+piece, length)
			r.segment(point{a.x + dx*at, a.y + dy*at}, point{a.x + dx*end, a.y + dy*end}, width, src)
		}
	}
}

func (r *raster) segment(a, b point, width float64, src image.Image) {
	if a.x == b.x || a.y == b.y { // along an axis: a crisp rectangle, without the cost of the rasteriser
		half := width / 2
		rect := image.Rect(int(math.Floor((math.Min(a.x, b.x)-half)*r.scale+.5)),
			int(math.Floor((math.Min(a.y, b.y)-half)*r.scale+.5)),
			int(math.Floor((math.Max(a.x, b.x)+half)*r.scale+.5)),
			int(math.Floor((math.Max(a.y, b.y)+half)*r.scale+.5)))
		rect.Max.X, rect.Max.Y = max(rect.Max.X, rect.Min.X+1), max(rect.Max.Y, rect.Min.Y+1)
		draw.Draw(r.img, rect, src, image.Point{}, draw.Over)
		return
	}
	length := math.Hypot(b.x-a.x, b.y-a.y)
	nx, ny := -(b.y-a.y)/length*width/2, (b.x-a.x)/length*width/2
	r.polygon([]point{{a.x + nx, a.y + ny}, {b.x + nx, b.y + ny}, {b.x - nx, b.y - ny}, {a.x - nx, a.y - ny}},
		src)
}

func (r *raster) text(x, y float64, s string, st textStyle) {
	face := r.face(st)
	if face == nil {
		return
	}
	d := font.Drawer{Dst: r.img, Src: image.NewUniform(st.color), Face: face}
	advance := float64(d.MeasureString(s)) / 64
	px := x * r.scale
	switch st.anchor {
	case anchorMiddle:
		px -= advance / 2
	case anchorEnd:
		px -= advance
	}
	d.Dot = fixed.Point26_6{X: fixed.Int26_6(px * 64), Y: fixed.Int26_6(y * r.scale * 64)}
	d.DrawString(s)
}

func (r *raster) face(st textStyle) font.Face {
	key := faceKey{st.size, st.bold}
	if f, ok := r.faces[key]; ok {
		return f
	}
	src := r.fonts.regular
	if st.bold {
		src = r.fonts.bold
	}
	f, err := opentype.NewFace(src, &opentype.FaceOptions{Size: st.size * r.scale, DPI: 72,
		Hinting: font.HintingNone})
	if err != nil {
		f = nil // an impossible size; text of that size is left out
	}
	r.faces[key] = f
	return f
}

// hatch is an endless image.Image of thin lines, at an angle of 0, 45, -45 or 90 degrees, every spacing
// pixels; none for spacing 0.
type hatch struct {
	ground, line   color.RGBA
	angle, spacing int
}

// ColorModel returns RGBA's.
func (h hatch) ColorModel() color.Model { return color.RGBAModel }

// Bounds returns an area larger than any figure.
func (h hatch) Bounds() image.Rectangle { return image.Rect(-1e9, -1e9, 1e9, 1e9) }

// At returns the colour of a pixel.
func (h hatch) At(x, y int) color.Color { return h.at(x, y) }

func (h hatch) at(x, y int) color.RGBA {
	v := y
	switch h.angle {
	case 90:
		v = x
	case 45:
		v = x + y
	case -45:
		v = x - y
	}
	if v %= h.spacing; v < 0 {
		v += h.spacing
	}
	if v < 2 {
		return h.line
	}
	return h.ground
}

// blend returns c with a third of d in it.
func blend(c, d color.RGBA) color.RGBA {
	mix := func(a, b uint8) uint8 { return uint8((2*int(a) + int(b)) / 3) }
	return color.RGBA{mix(c.R, d.R), mix(c.G, d.G), mix(c.B, d.B), 255}
}
