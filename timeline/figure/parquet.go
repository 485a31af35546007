package figure

import (
	"context"
	"io"
	"strconv"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/figure/parquet"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// parquetColumns are the columns of the csv table; an address is a number here.
var parquetColumns = []parquet.Column{
	{Name: "name"}, {Name: "device"}, {Name: "address", Kind: parquet.Uint},
	{Name: "bytes", Kind: parquet.Int}, {Name: "requested_bytes", Kind: parquet.Int},
	{Name: "stream", Kind: parquet.Uint},
	{Name: "start_ns", Kind: parquet.Int, Optional: true},
	{Name: "free_requested_ns", Kind: parquet.Int, Optional: true},
	{Name: "end_ns", Kind: parquet.Int, Optional: true},
	{Name: "start_event", Kind: parquet.Int, Optional: true},
	{Name: "free_requested_event", Kind: parquet.Int, Optional: true},
	{Name: "end_event", Kind: parquet.Int, Optional: true},
	{Name: "category"}, {Name: "category_inferred", Kind: parquet.Bool},
	{Name: "module"}, {Name: "site"}, {Name: "stack", Kind: parquet.Int},
}

// Parquet writes every allocation as a row of an Apache Parquet file, with the columns of [CSV]; times
// outside of the recording are null.
func Parquet(ctx context.Context, w io.Writer, d *timeline.Device, o Options) error {
	span, err := report.Resolve(d, o.From, o.To)
	if err != nil {
		return err
	}
	p, err := parquet.NewWriter(w, "allocations", parquetColumns)
	if err != nil {
		return err
	}
	err = rowsOf(ctx, d, span, func(r *allocation) error {
		p.Text(r.Name)
		p.Text(r.Device)
		address, _ := strconv.ParseUint(r.Address, 0, 64) // rowsOf wrote it
		p.Uint(address)
		p.Int(r.Bytes)
		p.Int(r.Requested)
		p.Uint(uint64(r.Stream))
		for _, v := range []*int64{r.StartNs, r.FreedNs, r.EndNs, r.Start, r.Freed, r.End} {
			if v == nil {
				p.Null()
			} else {
				p.Int(*v)
			}
		}
		p.Text(r.Category)
		p.Bool(r.Inferred)
		p.Text(r.Module)
		p.Text(r.Site)
		p.Int(int64(r.stackText))
		return p.Row()
	})
	if err != nil {
		return err
	}
	return p.Close()
}
