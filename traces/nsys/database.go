package nsys

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/gmemtop/gmemtop/traces"
)

// Limits of one database. SQLite itself checks every length against the file.
const (
	maxValue   = 64 << 20 // bytes of a row
	maxSQL     = 1 << 20  // bytes of a statement in the schema
	maxColumns = 500
)

// theSchema is what errors call the list of tables.
const theSchema = "the list of tables"

// database is an open export.
type database struct {
	ctx    context.Context
	conn   *sqlite.Conn
	tables map[string]bool
}

func openDatabase(ctx context.Context, path string) (*database, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("nsys: %w", err)
	}
	uri := url.URL{Scheme: "file", Path: abs, RawQuery: "immutable=1&mode=ro"}
	conn, err := sqlite.OpenConn(uri.String(), sqlite.OpenReadOnly|sqlite.OpenURI)
	if err != nil {
		return nil, fmt.Errorf("nsys: %w", err)
	}
	d := &database{ctx: ctx, conn: conn, tables: map[string]bool{}}
	conn.SetInterrupt(ctx.Done())
	conn.Limit(sqlite.LimitLength, maxValue)
	conn.Limit(sqlite.LimitSQLLength, maxSQL)
	conn.Limit(sqlite.LimitColumn, maxColumns)
	conn.Limit(sqlite.LimitAttached, 0)
	if err := d.prepare(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// prepare makes the schema unable to run anything, and lists the tables. A schema that may be written (the
// file may not) is one that SQLite reads even if the file was cut.
func (d *database) prepare() error {
	for _, pragma := range []string{"writable_schema=ON", "trusted_schema=OFF", "cell_size_check=ON",
		"query_only=ON",
		"mmap_size=0"} {
		if err := d.query(theSchema, "PRAGMA "+pragma, func(row) {}); err != nil {
			return err
		}
	}
	return d.query(theSchema, "SELECT name, sql FROM sqlite_schema WHERE type='table' AND rootpage>0",
		func(r row) {
			if !strings.Contains(strings.ToUpper(r.text(1)), "VIRTUAL TABLE") {
				d.tables[r.text(0)] = true
			}
		})
}

func (d *database) close() {
	d.conn.SetInterrupt(nil)
	d.conn.Close()
}

func (d *database) has(table string) bool { return d.tables[table] }

// columns returns the stored columns of a table; computed ones are not among them.
func (d *database) columns(table string) (map[string]bool, error) {
	found := map[string]bool{}
	err := d.query("table "+table, `PRAGMA table_info("`+table+`")`, func(r row) {
		found[strings.ToLower(r.text(1))] = true
	})
	return found, err
}

// each calls body with the columns of each row of a table, in the order in which they are stored. The first
// required columns must be there; an absent one of the rest is NULL. An absent table has no rows.
func (d *database) each(table string, columns []string, required int, body func(row)) error {
	if !d.has(table) {
		return nil
	}
	found, err := d.columns(table)
	if err != nil {
		return err
	}
	list := make([]string, len(columns))
	for i, c := range columns {
		switch {
		case found[strings.ToLower(c)]:
			list[i] = `"` + c + `"`
		case i < required:
			return &traces.FormatError{Format: traces.FormatNsys, Offset: -1,
				Reason: fmt.Sprintf("table %s has no column %s", table, c),
				Advice: "export the report again with a newer nsys export --type sqlite"}
		default:
			list[i] = "NULL"
		}
	}
	return d.query("table "+table, `SELECT `+strings.Join(list, ",")+` FROM "`+table+`"`, body)
}

// query runs one statement; what is read is what errors name.
func (d *database) query(what, sql string, body func(row)) error {
	stmt, _, err := d.conn.PrepareTransient(sql)
	if err != nil {
		return d.fail(what, err)
	}
	defer stmt.Finalize()
	for {
		more, err := stmt.Step()
		if err != nil {
			return d.fail(what, err)
		}
		if !more {
			return nil
		}
		body(row{stmt})
	}
}

func (d *database) fail(what string, err error) error {
	if d.ctx.Err() != nil {
		return d.ctx.Err()
	}
	reason := fmt.Sprintf("%s cannot be read (%v)", what, sqlite.ErrCode(err).ToPrimary())
	var format *traces.FormatError
	if errors.As(err, &format) {
		return err
	}
	return &traces.FormatError{Format: traces.FormatNsys, Offset: -1, Reason: reason,
		Advice: "the copy may be incomplete: download it again, or export the report again"}
}

// row is one row of a query.
type row struct{ stmt *sqlite.Stmt }

func (r row) null(i int) bool { return r.stmt.ColumnType(i) == sqlite.TypeNull }

// int returns column i as a whole number, 0 for NULL.
func (r row) int(i int) int64 { return r.stmt.ColumnInt64(i) }

// text returns column i as text, "" for NULL.
func (r row) text(i int) string { return r.stmt.ColumnText(i) }

// id returns column i, or -1 for NULL.
func (r row) id(i int) int64 {
	if r.null(i) {
		return -1
	}
	return r.int(i)
}
